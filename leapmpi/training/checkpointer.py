"""Saving and restoring a training run in the middle of an epoch, and stopping it on request.

A checkpoint holds all that the iterations to come depend on: parameters, optimizer, position, what the engine has
chosen; and all that later records say of earlier iterations: losses, seconds, bytes and rows of the running epoch,
earlier epochs, the best model. Draws depend on their place alone, so there is no generator to save.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from leapmpi.config.setting import parse_interval
from leapmpi.engine.own_model import code_of
from leapmpi.errors import RESUMABLE, Interrupted, LeapmpiError
from leapmpi.fault_tolerance.stop_signals import NOTHING, SAVE, STOP, Signals, StopRequest, begin_vote
from leapmpi.runs.checkpoint_folder import CheckpointFile, CheckpointFolder, name_of
from leapmpi.runs.run_folder import RunFolder, without_losses
from leapmpi.session.label_statistics import scale_values
from leapmpi.system.phase_timers import PHASES
from leapmpi.training.model_state import named
from leapmpi.training.trainer import Trainer
from leapmpi.version import VERSION

log = logging.getLogger("leapmpi")


class Checkpointer:
    """Watches over the iterations of `trainer`: saves its state when due, and ends training on request.

    `job_end` is when the scheduler will end the job (seconds since 1970), known on rank 0. `last` is the checkpoint
    that this start goes on from. Methods are collective.
    """

    def __init__(
        self,
        trainer: Trainer,
        folder: RunFolder,
        signals: Signals,
        job_end: float | None = None,
        last: str | None = None,
    ) -> None:
        run = trainer.config.run
        self.trainer, self.folder, self.signals = trainer, folder, signals
        self.checkpoints = CheckpointFolder(folder.path)
        self.every, self.seconds = parse_interval(run.checkpoint_every, "run.checkpoint_every")
        self._answer: Callable[[], StopRequest] = StopRequest
        self.last = last
        # Intervals are measured on a clock that no one sets.
        self._saved_at = self._begun_at = time.monotonic()
        self._stop_at = _stop_at(job_end)
        self._slowest = 0.0
        self._failed = 0

    def iteration_begins(self) -> None:
        """Begin a vote of all ranks, while the iteration runs, whether to save or to stop after it."""
        self._begun_at = time.monotonic()
        self._answer = begin_vote(self.trainer.ctx.communicator, self._request())

    def iteration_ended(self, quiet: Callable[[], AbstractContextManager] = nullcontext) -> None:
        """Save if it is time to; raise Interrupted on all ranks, the state being saved, if any rank wants to stop.

        In the context that `quiet` makes nobody else uses MPI.
        """
        request, progress = self._answer(), self.trainer.progress
        self._slowest = max(self._slowest, time.monotonic() - self._begun_at)
        done = progress.epoch * self.trainer.per_epoch + progress.iteration
        if request.action == NOTHING and not (self.every and done % self.every == 0):
            return
        with quiet():
            if request.action == STOP:
                self.stop(request)
            error = self.save()
        # Training is worth more than a checkpoint: it goes on without, and the next one may succeed.
        if error and not self._failed and self.trainer.world.rank == 0:
            kept = f"the one of {self.last} stays" if self.last else "there is none yet"
            log.warning("warning: no checkpoint could be written (%s); training continues, %s", error, kept)
        self._failed += bool(error)

    @contextmanager
    def counting_failures(self) -> Iterator[None]:
        """Report at the end of the body how many checkpoints could not be written, if the last one could not."""
        try:
            yield
        finally:
            self._report_failed("the last one among them")

    def _report_failed(self, after: str) -> None:
        """Report how many checkpoints in a row could not be written, if more than one, and forget them."""
        if self._failed > 1 and self.trainer.world.rank == 0:
            log.warning("warning: %d checkpoints in a row could not be written, %s", self._failed, after)
        self._failed = 0

    @contextmanager
    def evaluation_round(self) -> Iterator[None]:
        """Wrap one round of an evaluation; raise Interrupted on all ranks after it if any rank wants to stop."""
        answer = begin_vote(self.trainer.ctx.communicator, self._request())
        yield
        request = answer()
        if request.action == STOP:
            self.stop(request)

    def stop(self, request: StopRequest) -> None:
        """Save, and raise Interrupted on all ranks."""
        trainer, progress = self.trainer, self.trainer.progress
        where = f"epoch {progress.epoch + 1}, after iteration {progress.iteration} of {trainer.per_epoch}"
        error = self.save(request.reason())
        if error and self.last is None:
            raise error
        saved, again = "a checkpoint was written, ", f"--run {self.folder.path} resumes it"
        if error:
            saved, again = "", f"{again} from {self.last}, the last checkpoint that could be written ({error})"
        stopped = Interrupted(
            f"{request.reason()}: training stopped in {where}; {saved}the same command with {again}", RESUMABLE
        )
        stopped.agreed = True
        raise stopped

    def save_end(self) -> None:
        """Write the checkpoint of the end, from which the finished run can go on by more epochs."""
        error = self.save()
        if error and self.trainer.world.rank == 0:
            log.warning("warning: no checkpoint of the end could be written (%s); the run cannot go on later", error)

    def save(self, reason: str = "") -> LeapmpiError | None:
        """Write a checkpoint; `reason` says why training stops here. Returns what kept it from being written."""
        trainer = self.trainer
        with trainer.ctx.phases("checkpoint"):
            begin = time.monotonic()
            trainer.meter.account(trainer.progress)
            name = name_of(trainer.progress.epoch, trainer.progress.iteration)
            state, of_rank = self._state()
            error = None if name == self.last else self._write(name, state, of_rank, reason)
            trainer.meter.forget()
            self._saved_at = time.monotonic()
            self._slowest = max(self._slowest, self._saved_at - begin)
        if error is None:
            self.last = name
            self._report_failed("then one could")
        return error

    def _state(self) -> tuple[CheckpointFile, dict[str, np.ndarray]]:
        """Return the state of all ranks, and of this one alone."""
        # Arrays that are the same on all ranks, and those of this rank alone.
        trainer, communicator, progress = self.trainer, self.trainer.ctx.communicator, self.trainer.progress
        losses, counts, phases, cores = progress.summed(communicator)
        arrays, about_models = trainer.models.state()
        choices, weights = trainer.engine.state(), trainer.ctx.task.class_weights
        shared = {"losses": losses, "phases": phases, "core_seconds": cores, **arrays}
        shared |= named("strategy", {name: each for name, each in choices.items() if isinstance(each, np.ndarray)})
        learned = trainer.ctx.learned
        of_rank = named("learned", learned.state()) if learned else {}

        # Plain values: where training stands, what was chosen, and the records so far.
        values = {
            "version": VERSION,
            "config": trainer.config.to_values(),
            "code": code_of(trainer.config),
            "graph_uuid": trainer.loaded.dataset.graph_uuid,
            "uuid": trainer.loaded.dataset.uuid,
            "ranks": trainer.world.size,
            "progress": {**progress.position, "seconds": progress.seconds, "counts": counts},
            "phases": list(PHASES),
            "target_scale": scale_values(trainer.ctx),
            "class_weights": None if weights is None else weights.tolist(),
            **about_models,
            "strategy": {name: each for name, each in choices.items() if not isinstance(each, np.ndarray)},
            "epochs": without_losses(trainer.epochs),
            "run_seconds": trainer.run_seconds(),
            "restarts": trainer.origin.restarts,
        }
        if choice := trainer.origin.choice:
            values["strategy_choice"] = choice.to_values()
        if trainer.part_assignment:
            values["part_dealing"] = trainer.part_assignment.state()
        return CheckpointFile(shared, values), of_rank

    def _write(
        self, name: str, state: CheckpointFile, of_rank: dict[str, np.ndarray], reason: str
    ) -> LeapmpiError | None:
        """Write the files of all ranks; returns the first error of any. All ranks find the same."""
        # A number that all files of this checkpoint share tells them from those of an earlier attempt.
        communicator = self.trainer.ctx.communicator
        first, rank = communicator.rank == 0, communicator.rank
        any_of_rank = int(communicator.all_gather_rows(np.array([len(of_rank)])).max()) > 0
        state.values["rank_pieces"] = communicator.size if any_of_rank else 0
        # 63 of its bits are a positive int64.
        token = communicator.broadcast(np.array([uuid.uuid4().int >> 65]) if first else None, "control")
        state.values["checkpoint"] = int(token[0])

        def finish() -> None:
            if reason:
                self.folder.record("interrupted", reason=reason, **self.trainer.progress.position)
            state.values["metrics_bytes"] = self.folder.keep_metrics()
            self.checkpoints.finish(name, state)

        # Rank 0 begins, ranks write what they alone hold, rank 0 makes the checkpoint valid.
        error = self._attempt(lambda: self.checkpoints.begin(name) if first else None)
        if error is None and any_of_rank:
            file = CheckpointFile(of_rank, {"checkpoint": int(token[0]), "rank": rank})
            error = self._attempt(lambda: self.checkpoints.write_rank(name, rank, file))
        if error is None:
            error = self._attempt(lambda: finish() if first else None)
        if error is not None and first:
            self.checkpoints.abandon(name)
        return error

    def _attempt(self, action: Callable[[], Any]) -> LeapmpiError | None:
        """Run `action`; returns the error of the first rank where it failed, on all ranks."""
        try:
            self.trainer.world.on_all(action)
        except Interrupted:
            # A second signal ends the job; any other error costs this checkpoint alone.
            raise
        except LeapmpiError as error:
            return error
        return None

    def _request(self) -> StopRequest:
        """Return the request of this rank. Local."""
        rank = self.trainer.ctx.communicator.rank
        if self.signals.number:
            return StopRequest(STOP, self.signals.number, rank)
        if rank:
            return StopRequest()
        # A stop takes effect two iterations later at most, and then writes a checkpoint.
        if self._stop_at is not None and time.time() + 2 * self._slowest >= self._stop_at:
            return StopRequest(STOP)
        due = self.seconds and time.monotonic() - self._saved_at >= self.seconds
        return StopRequest(SAVE) if due else StopRequest()


_MARGIN = 120.0
"""Seconds before the end of a job at which training stops."""


def _stop_at(job_end: float | None) -> float | None:
    """Return when to stop a job that ends at `job_end`: two minutes before, but not in its first nine tenths."""
    if job_end is None:
        return None
    left = job_end - time.time()
    return job_end - min(_MARGIN, left / 10)
