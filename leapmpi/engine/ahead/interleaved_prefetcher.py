"""Prefetching without threads: mini-batches are prepared where the step of an earlier one waits for other ranks.

For steps that exchange computed rows, or read rows that steps change. Planning, draws and ids of later iterations need
no weights, and fill the time in which rows and gradients of this one travel. Bits, bytes and the order of collectives
in each channel are those of the other ways: a rank prepares mini-batches in the channel AHEAD, whenever it has time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch

from leapmpi.comm.interleaving import InterleavedWork, take_turns
from leapmpi.comm.polling import waits
from leapmpi.engine.ahead.prefetch_task import Counts, PrefetchTask, requested
from leapmpi.engine.engine import Engine
from leapmpi.exchange.minibatch import MiniBatch


class _Prepared(NamedTuple):
    """A mini-batch, and what it has moved."""

    minibatch: MiniBatch
    counts: Counts


class InterleavedPrefetcher:
    """A `Prefetcher` of the mini-batches of `tasks`, at most `depth` ahead of the one in training.

    Which mini-batches a rank may prepare depends only on those that it has taken, never on time: all ranks drop the
    same ones when they stop.
    """

    def __init__(self, engine: Engine, tasks: Sequence[PrefetchTask], depth: int) -> None:
        self.engine, self.ctx, self.tasks, self.depth = engine, engine.ctx, tasks, depth
        self._taken = self._prepared = self._allowed = 0
        self._ready: deque[_Prepared] = deque()
        self._work: InterleavedWork | None = None

    def next(self) -> MiniBatch:
        """Return the next mini-batch, ready for its step. Raises what went wrong in preparing it."""
        self._taken += 1
        self._allow(self._taken)
        self._go_on(lambda: bool(self._ready))
        minibatch, counts = self._ready.popleft()
        # What it moved is counted now: what is dropped, and prepared again by the next start, must not count twice.
        self.ctx.communicator.byte_counters.add(*counts)
        self._allow(self._taken + self.depth)
        if self.engine.rows_change:
            # The step before has moved them. The next draws are made while they travel.
            with self.ctx.phases("exchange"):
                minibatch.complete()
        return minibatch

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the calling thread make MPI calls in the body, once what may be prepared ahead is prepared."""
        self._go_on()
        yield

    def __enter__(self) -> InterleavedPrefetcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Others may never answer what is under way where training has failed.
        if kind is None:
            self._go_on()
        elif self._work is not None:
            self._work.abandon()

    def _allow(self, count: int) -> None:
        """Let the first `count` mini-batches of all be prepared from now on, wherever this thread waits."""
        self._allowed = max(self._allowed, min(count, len(self.tasks)))
        if self._prepared < self._allowed and (self._work is None or self._work.done):
            # Training may wait in a backward pass, where nothing else learns; what is planned must not depend on that.
            self._work = InterleavedWork(self._prepare, torch.enable_grad)

    def _prepare(self) -> None:
        """Prepare what is allowed."""
        while self._prepared < self._allowed:
            minibatch = requested(self.engine, self.tasks[self._prepared])
            if not self.engine.rows_change:
                with self.ctx.phases("exchange"):
                    minibatch.complete()
            self._ready.append(_Prepared(minibatch, self.ctx.communicator.byte_counters.take()))
            self._prepared += 1
            if waits.for_work:
                take_turns()

    def _go_on(self, enough: Callable[[], bool] = lambda: False) -> None:
        """Prepare until `enough` holds, or all that is allowed. Raises what went wrong in it."""
        if self._work is None:
            return
        with self.ctx.phases("wait"):
            waits.for_work = True
            try:
                self._work.finish(enough)
            except Exception:
                # The message shall name where the work ahead failed, not where training stands.
                self.ctx.phases.adopt_ahead()
                raise
            finally:
                waits.for_work = False
