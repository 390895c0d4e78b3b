"""Prefetching without threads: the next mini-batch is prepared where the step of the one before waits for other ranks.

For steps that exchange computed rows. Planning, draws and ids of the next iteration need no weights, and fill the time
in which rows and gradients of this one travel. Bits, bytes and the order of collectives in each channel are those of
the other ways: a rank prepares the next mini-batch in the channel AHEAD, whenever it has time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from leapmpi.comm.interleaving import InterleavedWork
from leapmpi.comm.polling import waits
from leapmpi.engine.ahead.prefetch_task import Counts, PrefetchTask, requested
from leapmpi.engine.engine import Engine
from leapmpi.exchange.minibatch import MiniBatch


class _Preparation:
    """The mini-batch of `task`, and what it has moved, once `work` has ended."""

    minibatch: MiniBatch
    counts: Counts

    def __init__(self, engine: Engine, task: PrefetchTask) -> None:
        self._engine, self._task = engine, task
        # Training may wait in a backward pass, where nothing else learns; what is planned must not depend on that.
        self.work = InterleavedWork(self._prepare, torch.enable_grad)

    def _prepare(self) -> None:
        minibatch = requested(self._engine, self._task)
        with self._engine.ctx.phases("exchange"):
            minibatch.complete()
        self.minibatch, self.counts = minibatch, self._engine.ctx.communicator.byte_counters.take()


class InterleavedPrefetcher:
    """A `Prefetcher` of the mini-batches of `tasks`, one ahead."""

    def __init__(self, engine: Engine, tasks: Sequence[PrefetchTask]) -> None:
        self.engine, self.ctx, self.tasks = engine, engine.ctx, tasks
        self._begun = 0
        self._next: _Preparation | None = None

    def next(self) -> MiniBatch:
        """Return the next mini-batch, ready for its step. Raises what went wrong in preparing it."""
        if self._next is None:
            self._begin()
        ready = self._finished()
        # What it moved is counted now: what is dropped, and prepared again by the next start, must not count twice.
        self.ctx.communicator.byte_counters.add(*ready.counts)
        self._next = None
        if self._begun < len(self.tasks):
            self._begin()
        return ready.minibatch

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the calling thread make MPI calls in the body, once what may be prepared ahead is prepared."""
        if self._next is not None:
            self._finished()
        yield

    def __enter__(self) -> InterleavedPrefetcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._next is None:
            return
        # Others may never answer what is under way where training has failed.
        if kind is None:
            self._finished()
        else:
            self._next.work.abandon()

    def _begin(self) -> None:
        self._next = _Preparation(self.engine, self.tasks[self._begun])
        self._begun += 1

    def _finished(self) -> _Preparation:
        """Return the preparation under way, once it has ended. Raises what went wrong in it."""
        assert self._next is not None, "it has begun"
        with self.ctx.phases("wait"):
            waits.for_work = True
            try:
                self._next.work.finish()
            except Exception:
                self.ctx.phases.adopt_ahead()
                raise
            finally:
                waits.for_work = False
        return self._next
