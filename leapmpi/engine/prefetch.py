"""Running ahead: iterations are planned, sampled and fetched while earlier ones are trained.

At depth 0 each is prepared when it is asked for, on the calling thread. At depth d a second thread prepares up to d
of them ahead, in the lane AHEAD, and a courier makes all MPI calls of both threads; it does so at depth 0 too where
steps compute while their own messages travel. From depth 2 on, an iteration is planned, sampled and packed while the
rows of the one before travel, in the lane ROWS, so that the link does not wait for it. How far a rank may run ahead
follows from what it has taken alone, never from time: after k iterations taken, all ranks have prepared the same d
further ones when the work is stopped, so nobody waits for a rank that has given up.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
import torch

from leapmpi.comm.polling import waits
from leapmpi.comm.progress_thread import ProgressThread
from leapmpi.comm.world import load_mpi, threads_may_call
from leapmpi.config.sections import StrategyConfig
from leapmpi.engine.minibatch import MiniBatch
from leapmpi.engine.strategy import Strategy
from leapmpi.errors import ConfigError
from leapmpi.system import channels, jit

_PATIENCE = 5.0
"""Seconds to wait for the thread that runs ahead when training has failed."""


@dataclass(frozen=True)
class PrefetchTask:
    """An iteration to prepare; `batch` holds its roots on rank 0, which plans, and None elsewhere."""

    batch: np.ndarray | None
    epoch: int
    iteration: int


@dataclass(frozen=True)
class _Prepared:
    """The iteration of `job`, and what it has moved, as `Ledger.take` gives it."""

    job: PrefetchTask
    minibatch: MiniBatch
    counts: tuple[dict[str, int], dict[str, int]]


class Prefetcher:
    """Hands out `jobs` planned and fetched, in order. Use it as a context: within, iterations are taken with `next`.

    While the context lasts and a courier is at work, the calling thread reaches other ranks by Wire alone; `paused`
    gives MPI back to it for a while. Leaving it early drops what was prepared, on all ranks alike. Collective.
    """

    def __init__(self, strategy: Strategy, jobs: Sequence[PrefetchTask], depth: int) -> None:
        self.strategy, self.ctx, self.jobs, self.depth = strategy, strategy.ctx, jobs, depth
        self._taken = 0
        overlaps = strategy.overlaps and self.ctx.communicator.size > 1
        self._carried = depth > 0 or (overlaps and threads_may_call(load_mpi()))
        self._progress_thread = ProgressThread(self._select_device)
        self._turn = threading.Condition()
        self._allowed, self._done, self._closed, self._pauses = depth, 0, False, False
        self._ready: SimpleQueue[_Prepared | None] = SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="leapmpi-ahead", daemon=True)

    def next(self) -> MiniBatch:
        """The next iteration, ready for its step. Raises what went wrong in preparing it."""
        job = self.jobs[self._taken]
        self._taken += 1
        if not self.depth:
            return self._prepare(job)
        with self.ctx.phases("wait"):
            waits.for_work = True
            ready = self._ready.get()
            waits.for_work = False
        if ready is None:
            self._raise_error()
        # What it moved is counted now: what is dropped, and prepared again by the next start, must not count twice.
        self.ctx.communicator.byte_counters.add(*ready.counts)
        with self._turn:
            self._allowed += 1
            self._turn.notify_all()
        return ready.minibatch

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the calling thread make MPI calls in the body, once what may be prepared ahead is prepared."""
        if not self._carried:
            yield
            return
        if self.depth:
            with self._turn:
                self._pauses = True
                self._turn.notify_all()
                self._turn.wait_for(lambda: self._done == min(self._allowed, len(self.jobs)) or self._error)
                self._pauses = False
            self._raise_error()
        self._stop_progress_thread()
        yield
        self._start_progress_thread()

    def __enter__(self) -> Prefetcher:
        if self._carried:
            self._start_progress_thread()
        if self.depth:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._carried:
            return
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        if kind is None:
            if self.depth:
                self._thread.join()
            self._stop_progress_thread()
            self._raise_error()
            return
        # Others may never answer what is under way. Without the courier this thread's messages fail at once.
        self._progress_thread.stop()
        if self.depth:
            self._thread.join(_PATIENCE)
        self.ctx.communicator.progress_thread = None

    def _start_progress_thread(self) -> None:
        self._progress_thread.start()
        self.ctx.communicator.progress_thread = self._progress_thread

    def _stop_progress_thread(self) -> None:
        self._progress_thread.stop()
        self.ctx.communicator.progress_thread = None

    def _raise_error(self) -> None:
        """Raise what went wrong on the other thread, if anything did."""
        if self._error is not None:
            self.ctx.phases.stand_ahead()
            raise self._error

    def _prepare(self, job: PrefetchTask) -> MiniBatch:
        self._stand_at(job)
        minibatch = self.strategy.plan(job.batch, job.epoch, job.iteration)
        self.strategy.fetch(minibatch)
        return minibatch

    # -- on the thread that runs ahead -----------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._select_device()
            jit.set_threads(self.ctx.sampler.threads)
            with channels.ahead():
                self._run_ahead()
        except BaseException as error:
            with self._turn:
                self._error = error
                self._turn.notify_all()
            self._ready.put(None)

    def _run_ahead(self) -> None:
        # On a GPU this thread's work is queued apart from training's. What it fills is ready when handed over, and may
        # be given back after the iteration's step, which ends by waiting for training's own work.
        stream = torch.cuda.Stream(self.ctx.device) if self.ctx.device.type == "cuda" else None
        with torch.cuda.stream(stream) if stream else nullcontext():
            under_way: _Prepared | None = None
            for number, job in enumerate(self.jobs):
                if under_way and not self._may_prepare(number, holding=True):
                    self._hand_over(under_way, stream)
                    under_way = None
                if not self._may_prepare(number, holding=False):
                    return
                try:
                    minibatch = self._asked(job)
                except Exception:
                    # All ranks have begun the one before, and all train it or none.
                    if under_way:
                        with suppress(Exception):
                            self._hand_over(under_way, stream)
                    self._stand_at(job)
                    raise
                if under_way:
                    self._wait(under_way)
                arrived, under_way = under_way, self._begun(job, minibatch)
                if arrived:
                    self._hand_over(arrived, stream)
                del minibatch, arrived
            if under_way:
                self._hand_over(under_way, stream)

    def _stand_at(self, job: PrefetchTask) -> None:
        self.ctx.phases.epoch, self.ctx.phases.iteration = job.epoch, job.iteration

    def _asked(self, job: PrefetchTask) -> MiniBatch:
        self._stand_at(job)
        minibatch = self.strategy.plan(job.batch, job.epoch, job.iteration)
        self.strategy.ask(minibatch)
        return minibatch

    def _begun(self, job: PrefetchTask, minibatch: MiniBatch) -> _Prepared:
        """Set the rows of `minibatch` off; those of the iteration before it have arrived."""
        self._stand_at(job)
        with self.ctx.phases("exchange"):
            minibatch.begin()
        return _Prepared(job, minibatch, self.ctx.communicator.byte_counters.take())

    def _wait(self, prepared: _Prepared) -> None:
        """Wait until the rows are here."""
        self._stand_at(prepared.job)
        with self.ctx.phases("exchange"):
            prepared.minibatch.wait()

    def _hand_over(self, prepared: _Prepared, stream: torch.cuda.Stream | None) -> None:
        """Give an iteration to training once its rows are here."""
        self._wait(prepared)
        with self.ctx.phases("exchange"):
            prepared.minibatch.unpack()
        if stream:
            stream.synchronize()
        self._ready.put(prepared)
        with self._turn:
            self._done += 1
            self._turn.notify_all()

    def _may_prepare(self, number: int, holding: bool) -> bool:
        """Wait until iteration `number` may be prepared; False when it may not for now, or, at the end, ever.

        `holding` says that the one before is not handed over yet: at depth 1 training needs to take it first.
        """
        with self._turn:
            self._turn.wait_for(
                lambda: number < self._allowed or self._closed or (holding and (self._pauses or self.depth == 1))
            )
            return number < self._allowed

    def _select_device(self) -> None:
        """Threads start on the first GPU, whichever their process has chosen."""
        if self.ctx.device.type == "cuda":
            torch.cuda.set_device(self.ctx.device)


def check_prefetch(config: StrategyConfig) -> None:
    """Raise ConfigError when running ahead is asked for and MPI cannot be called by threads in turn. MPI must run."""
    if config.prefetch not in ("auto", "0") and not threads_may_call(load_mpi()):
        raise ConfigError(
            f"strategy.prefetch: {config.prefetch} needs an MPI that several threads may call in turn "
            "(MPI_THREAD_SERIALIZED), which this one does not offer or was not started with; use --prefetch 0"
        )


def choose_depth(strategy: Strategy) -> int:
    """Iterations to prepare ahead: as many as `strategy` wants, none where `auto` meets an MPI that cannot be called by
    threads in turn. MPI must run."""
    chosen = strategy.config.prefetch != "auto" or threads_may_call(load_mpi())
    return strategy.most_ahead if chosen else 0


def about_depth(strategy: Strategy, depth: int) -> list[str]:
    """What to tell where `depth`, as `choose_depth` gave it, is less than `strategy` wants."""
    wanted = strategy.most_ahead
    if depth == wanted:
        return []
    return [
        f"no iterations are prepared ahead, where --prefetch auto would take {wanted}: this MPI cannot be called by "
        "several threads in turn (MPI_THREAD_SERIALIZED), or was not started so"
    ]
