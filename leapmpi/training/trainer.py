"""The training loop: epochs of iterations, then scores, records and weights."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from leapmpi.engine.ahead.prefetch_depth import prefetcher
from leapmpi.engine.ahead.prefetch_task import PrefetchTask
from leapmpi.engine.engine import Engine
from leapmpi.errors import DataError, ResourceError
from leapmpi.evaluation.evaluator import Evaluator
from leapmpi.exchange.context import Loaded, RankContext
from leapmpi.full_batch.part_assignment import PartAssignment
from leapmpi.plan.chosen_strategy import Choice
from leapmpi.runs.progress_line import step
from leapmpi.runs.run_folder import RunFolder, drop_figures_of_file
from leapmpi.runs.text import size_text
from leapmpi.session.setup import load_reassigned
from leapmpi.training.epoch_record import EpochMeter, EpochProgress, baseline_line, epoch_details, epoch_line, of_losses
from leapmpi.training.feature_cache import FeatureCache
from leapmpi.training.role_training import Pace
from leapmpi.training.training_components import Components, Prepared

log = logging.getLogger("leapmpi")


class IterationWatcher(Protocol):
    """Observer of every iteration, which saves checkpoints and stops training. Collective."""

    def iteration_begins(self) -> None:
        """Prepare for an iteration that begins."""

    def iteration_ended(self, quiet: Callable[[], AbstractContextManager[None]]) -> None:
        """React to the end of the iteration. In the context that `quiet` makes, no other thread uses MPI."""

    def evaluation_round(self) -> AbstractContextManager[None]:
        """Return a context for one batch of an evaluation."""
        ...


@dataclass
class Origin:
    """The state from which a start trains: none, or that of a checkpoint.

    progress: None at the first iteration. epochs: records of the epochs done. restarts and seconds: of earlier starts.
    choice: of `--strategy auto`. initial: what `--init` took from another run.
    """

    progress: EpochProgress | None = None
    epochs: list[dict[str, Any]] = field(default_factory=list)
    restarts: int = 0
    seconds: float = 0.0
    choice: Choice | None = None
    initial: dict[str, Any] | None = None


class Trainer:
    """Trains the models of `components`. All ranks do the same, but for roles and for what rank 0 alone writes.

    `begun` is when this start began, on the clock time.perf_counter. `part_assignment` moves parts between epochs.
    """

    def __init__(
        self,
        components: Components,
        prepared: Prepared,
        begun: float,
        origin: Origin | None = None,
        part_assignment: PartAssignment | None = None,
    ) -> None:
        self.components, self.prepared, self.begun = components, prepared, begun
        self.origin, self.part_assignment = origin or Origin(), part_assignment
        self.config, self.world, self.models = components.config, components.world, components.models
        self.roles, self.per_epoch = components.roles, components.batches.per_epoch
        self.epochs = self.origin.epochs
        self.progress = self.origin.progress or EpochProgress(np.zeros(self.per_epoch))
        self.meter = EpochMeter(self.ctx.phases, self.ctx.communicator)
        self._watcher: IterationWatcher | None = Pace(self.ctx.communicator) if self.roles else None

    @property
    def loaded(self) -> Loaded:
        """Dataset, topology and context of this rank."""
        return self.components.loaded

    @property
    def ctx(self) -> RankContext:
        """Context of this rank."""
        return self.components.ctx

    @property
    def engine(self) -> Engine:
        """Engine of this rank."""
        return self.components.engine

    @property
    def evaluator(self) -> Evaluator:
        """Evaluator of the splits."""
        return self.components.evaluator

    @property
    def feature_cache(self) -> FeatureCache:
        """Feature rows in memory."""
        return self.components.feature_cache

    # -- epochs ------------------------------------------------------------------------------------------------------

    def run(self, folder: RunFolder, watcher: IterationWatcher) -> None:
        """Train all epochs that are left, record them in `folder` and write the weights there. Collective."""
        self._watcher = watcher
        self.evaluator.place.around = watcher.evaluation_round
        for epoch in range(self.progress.epoch, self.config.train.epochs):
            if self.stops_early:
                break
            record, compute = self.epoch(epoch), self.progress.phases["compute"]
            self.progress = EpochProgress(np.zeros(self.per_epoch), epoch + 1)
            if self.world.rank == 0:
                self._write_records(folder, record)
            if self.part_assignment and not self.stops_early:
                self._redistribute_parts(self.part_assignment, epoch, [compute, record["seconds"]])
        self.ctx.phases.epoch = None
        save = self.models.saver()
        self.world.on_root(lambda: self._save(folder, save))

    def epoch(self, epoch: int) -> dict[str, Any]:
        """Train epoch number `epoch`, score the splits if it is time to, and return its record. Collective."""
        record = self.train_epoch(epoch)
        if self.evaluates(epoch):
            self._evaluate(epoch, record)
        self.models.close_epoch(record)
        self.epochs.append(record)
        return record

    def train_epoch(self, epoch: int) -> dict[str, Any]:
        """Train one pass over the roots; return its record without scores. Collective."""
        ctx, phases = self.ctx, self.ctx.phases
        phases.epoch = epoch
        if self.progress.epoch != epoch:
            self.progress = EpochProgress(np.zeros(self.per_epoch), epoch)
        # Seconds of an epoch count from the moment when the last rank is here.
        with phases("wait"):
            ctx.communicator.barrier()

        # What the loop does between phases counts as computing, so that phases add up to the epoch.
        with phases("compute"):
            self.meter.begin(whole=self.progress.iteration == 0)
            self._iterations(epoch)
            with phases("wait"):
                ctx.communicator.barrier()
            self.meter.account(self.progress)
        losses, figures, counts = self.meter.end(self.progress)
        depth = self.prepared.prefetch_depth
        record = {
            "epoch": epoch,
            **of_losses(losses, self.components.batch_sizes, epoch),
            **figures,
            "accuracy": {"val": None, "test": None},
            "time_steps": self.engine.placement.time_steps,
            "remote": self.engine.mode_name,
            "lr": self.models.last_rate,
            "prefetch": depth,
            **self.feature_cache.epoch(counts),
        }
        if self.roles:
            record["busy"] = self.roles.busy(self.progress, depth > 0, record["seconds"])
        return record

    def _iterations(self, epoch: int) -> None:
        """Train the iterations of an epoch that are not done yet. Collective."""
        batches, progress, watcher = self.components.planned_batches(epoch), self.progress, self._watcher
        # A resumed epoch continues after its last finished iteration.
        left = range(progress.iteration, self.per_epoch)
        tasks = [PrefetchTask(batches[iteration] if batches else None, epoch, iteration) for iteration in left]
        # The roots to come are known, so their schedules can travel ahead.
        self.engine.roots.expect([(task.batch, task.epoch, task.iteration) for task in tasks])
        name = f"epoch {epoch + 1}/{self.config.train.epochs}"
        with (
            step(name, self.per_epoch, "iterations", progress.iteration) as shown,
            prefetcher(self.engine, tasks, self.prepared.prefetch_depth) as ahead,
        ):
            for iteration in left:
                self.ctx.phases.iteration = iteration
                if watcher:
                    watcher.iteration_begins()
                minibatch = ahead.next()
                number = epoch * self.per_epoch + iteration
                progress.losses[iteration] = self.models.step(self.engine, minibatch, number)
                # From here on a checkpoint holds this iteration: weights and progress have moved together.
                progress.iteration = iteration + 1
                if watcher:
                    watcher.iteration_ended(ahead.paused)
                shown.reach(iteration + 1)
        self.engine.roots.expect(())
        self.ctx.phases.iteration = None

    # -- scores ------------------------------------------------------------------------------------------------------

    def evaluates(self, epoch: int) -> bool:
        """Return whether the splits are scored after `epoch`."""
        every, last = self.config.evaluate.every, self.config.train.epochs - 1
        return epoch == last or (every > 0 and (epoch + 1) % every == 0)

    @property
    def stops_early(self) -> bool:
        """Whether training ends before all epochs are done: --early-stop evaluations brought no better score.

        It follows from the records of the epochs, which checkpoints hold: a restart stops where a run without would.
        """
        limit = self.config.train.early_stop
        return 0 < limit <= self.models.evaluations_since_best(self.epochs)

    def _evaluate(self, epoch: int, record: dict[str, Any]) -> None:
        """Score the splits and keep the best models so far. Collective."""
        begin = time.perf_counter()
        with self.ctx.phases("evaluate"):
            scores = self.models.scores(self.evaluator, self.engine.mode_name)
            # Once a run, the score of a model that has learned nothing.
            if not any("evaluation_seconds" in each for each in self.epochs):
                record["trivial"] = self.evaluator.trivial_scores()
        self.ctx.communicator.byte_counters.take()
        self.feature_cache.begin()
        record["evaluation_seconds"] = time.perf_counter() - begin
        with self.ctx.phases("evaluate"):
            record |= self.models.keep_best(epoch, scores, self.evaluator)

    # -- parts that move, records and files ----------------------------------------------------------------------------

    def _redistribute_parts(self, assignment: PartAssignment, epoch: int, seconds: list[float]) -> None:
        """Redistribute parts after `epoch` if that pays; `seconds` of this rank: computing, and all. Collective."""
        ctx, starts, begin, held = self.ctx, None, time.perf_counter(), self.components
        # Clocks differ between ranks, so rank 0 decides for all.
        spent = ctx.communicator.all_gather_rows(np.array(seconds))
        assignment.seconds.append([*spent[:, 0].tolist(), float(spent[0, 1])])
        if self.world.rank == 0:
            starts = assignment.decide(self.engine, epoch + 1, self.config.train.epochs - epoch - 1)
            starts = np.empty(0, np.int64) if starts is None else starts
        starts = ctx.communicator.broadcast(starts, "control")
        if not len(starts):
            return
        # Parts that do not fit on some rank do not end the run: it keeps the former assignment, for good.
        moved = size_text(assignment.moved_bytes(starts, ctx.features.shard.row_bytes))
        with ctx.phases("load"):
            loaded = load_reassigned(self.config, self.world, held.loaded, starts)
            try:
                self.components = held.moved(loaded)
            except ResourceError as error:
                if self.world.rank == 0:
                    log.warning("warning: parts stay on their ranks: %s", error)
                assignment.settled = True
                self.components = held.moved(held.loaded)
                return
        assignment.take(starts)
        held_by, took = ", ".join(map(str, np.diff(starts).tolist())), time.perf_counter() - begin
        log.info("parts redistributed: ranks hold %s; features of %s change ranks, %.2f s", held_by, moved, took)

    def run_seconds(self) -> float:
        """Return the seconds of the run so far, with those of earlier starts up to their last checkpoint."""
        return self.origin.seconds + time.perf_counter() - self.begun

    def _write_records(self, folder: RunFolder, record: dict[str, Any]) -> None:
        """Write an epoch's record and the decisions before it into `folder`, and a line to the log. On rank 0."""
        for decision in self.engine.tuning_log.take():
            folder.record("decision", **decision.to_values())
        folder.record("epoch", **record)
        drop_figures_of_file(record)
        log.info(epoch_line(record, self.config.train.epochs))
        log.debug(epoch_details(record, self.config.train.epochs, self.evaluator.metric.name))
        if baseline := baseline_line(record):
            log.info(baseline)
        # Commands read the best weights of a run before its end. They are written again there: a failure is a warning.
        if "evaluation_seconds" in record and folder.path.is_dir():
            try:
                self.models.save_best(folder, record["epoch"])
            except (DataError, ResourceError) as error:
                log.warning("warning: the best weights so far are not written: %s", error)

    def _save(self, folder: RunFolder, save: Callable[[RunFolder, list[dict[str, Any]], float], None]) -> None:
        """Write weights into `folder`, even if it has vanished. On rank 0."""
        if folder.make_again(self.config, self.epochs):
            log.warning(
                "warning: the run folder %s vanished; it was made again for its weights and epochs", folder.path
            )
        save(folder, self.epochs, self.run_seconds())
