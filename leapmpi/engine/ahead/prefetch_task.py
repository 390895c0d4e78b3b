"""Mini-batches to prepare ahead, and the protocol of prefetchers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from leapmpi.engine.engine import Engine
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.system.phase_timers import PhaseTimers

Counts = tuple[dict[str, int], dict[str, int]]
"""Bytes and rows that something has moved, by kind, as `ByteCounters.take` gives them."""


@dataclass(frozen=True)
class PrefetchTask:
    """A mini-batch to prepare; `batch` holds its roots on rank 0, which plans, and None elsewhere."""

    batch: np.ndarray | None
    epoch: int
    iteration: int

    def mark(self, phases: PhaseTimers) -> None:
        """Mark the calling thread's work from now on as work for this mini-batch."""
        phases.epoch, phases.iteration = self.epoch, self.iteration


def requested(engine: Engine, task: PrefetchTask) -> MiniBatch:
    """Return the mini-batch of `task`, planned, sampled and requested. Collective."""
    task.mark(engine.ctx.phases)
    minibatch = engine.plan(task.batch, task.epoch, task.iteration)
    engine.request(minibatch)
    return minibatch


class Prefetcher(Protocol):
    """Hands out mini-batches, planned and fetched, in order. Use it as a context: within, they are taken with `next`.

    `paused` is a context in whose body nobody else makes MPI calls. Leaving it early drops what was prepared, on all
    ranks alike. Collective.
    """

    def next(self) -> MiniBatch:
        """Return the next mini-batch, ready for its step. Raises what went wrong in preparing it."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Let the calling thread make MPI calls in the body, once what may be prepared ahead is prepared."""
        ...

    def __enter__(self) -> Prefetcher: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None: ...
