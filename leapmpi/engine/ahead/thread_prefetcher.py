"""Prefetching by threads: mini-batches are planned, sampled and fetched while earlier ones are trained.

At depth 0 each is prepared when it is taken, on the calling thread. At depth d a second thread prepares up to d of them
ahead, in the channel AHEAD, and a progress thread makes all MPI calls of both threads. The progress thread also runs at
depth 0 if steps compute on a GPU while their own messages travel. From depth 2 on, a mini-batch is planned, sampled and
packed while the rows of the one before travel, in the channel ROWS, so that the link does not idle.

The mini-batches that a rank may prepare depend only on those it has taken, never on time. After k mini-batches are
taken, all ranks have prepared the same d further ones when the work is stopped. So no rank waits for one that has given
up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from queue import SimpleQueue

import torch

from leapmpi.comm.mpi_communicator import of_job
from leapmpi.comm.polling import waits
from leapmpi.comm.progress_thread import ProgressThread, ProgressThreadStopped
from leapmpi.comm.world import load_mpi, threads_may_call
from leapmpi.engine.ahead.prefetch_task import Counts, PrefetchTask, requested
from leapmpi.engine.engine import Engine
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.system import channels

_JOIN_SECONDS = 5.0
"""Seconds to wait for the thread that runs ahead when training has failed."""

_STILL_SECONDS = 5.0
"""Seconds in which training waits and no message moves, after which it gets no further: work ahead has failed."""

_LOOK_SECONDS = 0.1
"""Seconds between two looks at it."""


@dataclass(frozen=True)
class _Prepared:
    """The mini-batch of `task`, and what it has moved so far, as `ByteCounters.take` gives it."""

    task: PrefetchTask
    minibatch: MiniBatch
    counts: list[Counts]


class ThreadPrefetcher:
    """Hands out `tasks` planned and fetched, in order. Use it as a context: within, iterations are taken with `next`.

    While the context lasts and a progress thread is at work, the calling thread reaches other ranks by Communicator
    alone; `paused` gives MPI back to it for a while. Leaving it early drops what was prepared, on all ranks alike.
    Collective.
    """

    def __init__(self, engine: Engine, tasks: Sequence[PrefetchTask], depth: int) -> None:
        self.engine = engine
        self.ctx = engine.ctx
        self.tasks = tasks
        self.depth = depth
        self._taken = 0
        # On the host messages move on between pieces of kernels.
        overlaps = engine.overlaps and self.ctx.communicator.size > 1 and self.ctx.device.type != "cpu"
        self._uses_progress_thread = depth > 0 or (overlaps and threads_may_call(load_mpi()))
        self._progress_thread = ProgressThread(self._select_device)
        self._condition = threading.Condition()
        self._allowed, self._done, self._closed, self._pauses = depth, 0, False, False
        self._ready: SimpleQueue[_Prepared | None] = SimpleQueue()
        self._error: BaseException | None = None
        self._unsettled: MiniBatch | None = None
        self._thread = threading.Thread(target=self._work, name="leapmpi-ahead", daemon=True)

    def next(self) -> MiniBatch:
        """Return the next mini-batch, ready for its step. Raises what went wrong in preparing it."""
        task = self.tasks[self._taken]
        self._taken += 1
        if not self.depth:
            minibatch = requested(self.engine, task)
            with self.ctx.phases("exchange"):
                minibatch.complete()
            return minibatch
        with self.ctx.phases("wait"):
            waits.for_work = True
            ready = self._ready.get()
            waits.for_work = False
        if ready is None:
            self._raise_error()
        assert ready is not None, "the thread leaves None with an error only"
        # What it moved is counted now: what is dropped, and prepared again by the next start, must not count twice.
        for counts in ready.counts:
            self.ctx.communicator.byte_counters.add(*counts)
        with self._condition:
            self._allowed += 1
            self._condition.notify_all()
        return ready.minibatch

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the calling thread make MPI calls in the body, once what may be prepared ahead is prepared."""
        if not self._uses_progress_thread:
            yield
            return
        if self.depth:
            with self._condition:
                self._pauses = True
                self._condition.notify_all()
                # All ranks have then prepared the same ones, so that no exchange is half begun.
                self._condition.wait_for(lambda: self._done == min(self._allowed, len(self.tasks)) or self._error)
                self._pauses = False
            self._raise_error()
        self._stop_progress_thread()
        yield
        self._start_progress_thread()

    def __enter__(self) -> ThreadPrefetcher:
        if self._uses_progress_thread:
            self._start_progress_thread()
        if self.depth:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._uses_progress_thread:
            return
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        if kind is None:
            if self.depth:
                self._thread.join()
            self._stop_progress_thread()
            self._raise_error()
            return
        # Others may never answer what is under way. Without the progress thread this thread's messages fail at once.
        self._progress_thread.stop()
        if self.depth:
            self._thread.join(_JOIN_SECONDS)
        of_job(self.ctx.communicator).progress_thread = None
        # Training's messages were given up because of an error ahead: that is what went wrong.
        if kind is ProgressThreadStopped:
            self._raise_error()

    def _start_progress_thread(self) -> None:
        self._progress_thread.start()
        of_job(self.ctx.communicator).progress_thread = self._progress_thread

    def _stop_progress_thread(self) -> None:
        self._progress_thread.stop()
        of_job(self.ctx.communicator).progress_thread = None

    def _raise_error(self) -> None:
        """Raise what went wrong on the other thread, if anything did."""
        if self._error is not None:
            self.ctx.phases.adopt_ahead()
            raise self._error

    # -- on the thread that runs ahead -----------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._select_device()
            with channels.ahead():
                self._run_ahead()
        except BaseException as error:
            with self._condition:
                self._error = error
                self._condition.notify_all()
            # Training waits on the queue, not on the condition.
            self._ready.put(None)
            self._free_training()

    def _free_training(self) -> None:
        """Make sure after an error that training ends, though other ranks wait for what this one did not prepare.

        Where all ranks fail alike training comes to the error by itself. Else the wait in which it stands still is
        ended.
        """
        still, seen = 0.0, (-1, -1)
        with self._condition:
            while not self._closed and still < _STILL_SECONDS:
                self._condition.wait(_LOOK_SECONDS)
                now = waits.moves, waits.begun
                still = still + _LOOK_SECONDS if now == seen and waits.waiting else 0.0
                seen = now
            if self._closed:
                return
        self._progress_thread.stop()

    def _run_ahead(self) -> None:
        # On a GPU this thread's work is queued apart from training's. What it fills is ready when handed over, and may
        # be given back after the mini-batch's step, which ends by waiting for training's own work.
        stream = torch.cuda.Stream(self.ctx.device) if self.ctx.device.type == "cuda" else None
        with torch.cuda.stream(stream) if stream else nullcontext():
            under_way: _Prepared | None = None
            for number, task in enumerate(self.tasks):
                if under_way and not self._may_prepare(number, lambda: self._pauses or self._hands_over_at_once):
                    self._hand_over(under_way, stream)
                    under_way = None
                # Only a pause waits for the end of sends. A rank that may prepare this one already needs the others
                # for it, and sends its share of the one before only then: whoever waited for that would wait for ever.
                if self._unsettled and not self._may_prepare(number, lambda: self._pauses):
                    self._settle()
                if not self._may_prepare(number):
                    return
                try:
                    minibatch = requested(self.engine, task)
                    counts = self.ctx.communicator.byte_counters.take()
                except Exception:
                    # All ranks have begun the one before, and all train it or none.
                    if under_way:
                        with suppress(Exception):
                            self._hand_over(under_way, stream)
                    task.mark(self.ctx.phases)
                    raise
                if under_way:
                    self._wait(under_way)
                arrived, under_way = under_way, self._begun(task, minibatch, counts)
                if arrived:
                    self._hand_over(arrived, stream)
                if minibatch.row_exchange is None:
                    # Nothing of it travels.
                    self._hand_over(under_way, stream)
                    under_way = None
                del minibatch, arrived
            if under_way:
                self._hand_over(under_way, stream)
            self._settle()

    def _begun(self, task: PrefetchTask, minibatch: MiniBatch, counts: Counts) -> _Prepared:
        """Start the exchange of the rows of `minibatch`; those of the one before have arrived.

        counts: what its request has moved.
        """
        task.mark(self.ctx.phases)
        with self.ctx.phases("exchange"):
            minibatch.begin()
        return _Prepared(task, minibatch, [counts, self.ctx.communicator.byte_counters.take()])

    def _wait(self, prepared: _Prepared) -> None:
        """Wait until the rows are here."""
        prepared.task.mark(self.ctx.phases)
        with self.ctx.phases("exchange"):
            prepared.minibatch.wait()
        prepared.counts.append(self.ctx.communicator.byte_counters.take())

    def _hand_over(self, prepared: _Prepared, stream: torch.cuda.Stream | None) -> None:
        """Give a mini-batch to training once its rows are here; what it sends may be under way until the next one."""
        self._wait(prepared)
        self._settle()
        with self.ctx.phases("exchange"):
            prepared.minibatch.unpack()
        prepared.counts.append(self.ctx.communicator.byte_counters.take())
        if stream:
            stream.synchronize()
        self._ready.put(prepared)
        # Its sends may last; the next mini-batch is prepared meanwhile.
        self._unsettled = prepared.minibatch
        if not self.engine.preparation.ships:
            self._settle()

    def _settle(self) -> None:
        """Wait until nothing of the mini-batch that was handed over last is under way: then it is done."""
        if self._unsettled is None:
            return
        with self.ctx.phases("exchange"):
            self._unsettled.settle()
        self._unsettled = None
        with self._condition:
            self._done += 1
            self._condition.notify_all()

    @property
    def _hands_over_at_once(self) -> bool:
        """Whether a mini-batch is handed over though the next one may not be prepared yet.

        At depth 1 training needs to take it first, and what goes to other ranks is not held back.
        """
        return self.depth == 1 or self.engine.preparation.ships

    def _may_prepare(self, number: int, unless: Callable[[], bool] = lambda: False) -> bool:
        """Wait until mini-batch `number` may be prepared; False when training has ended, or `unless` holds, before."""
        with self._condition:
            self._condition.wait_for(lambda: number < self._allowed or self._closed or unless())
            return number < self._allowed

    def _select_device(self) -> None:
        """Select the device of this rank: threads start on the first GPU, whichever their process has chosen."""
        if self.ctx.device.type == "cuda":
            torch.cuda.set_device(self.ctx.device)
