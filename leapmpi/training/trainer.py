"""The training loop: epochs of iterations, then scores, records and weights."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.engine.ahead.prefetch_depth import prefetcher
from leapmpi.engine.ahead.prefetch_task import PrefetchTask
from leapmpi.engine.engine import Engine, make_engine
from leapmpi.engine.tuning import check_memory, choose_mode
from leapmpi.errors import ResourceError
from leapmpi.evaluation.evaluator import Evaluator
from leapmpi.exchange.context import Loaded
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.full_batch.part_dealing import PartDealing
from leapmpi.nn.parameters import ParameterLayout, digest
from leapmpi.plan.chosen_strategy import Choice
from leapmpi.runs.progress_line import step
from leapmpi.runs.run_folder import RunFolder, drop_figures_of_file
from leapmpi.runs.text import size_text
from leapmpi.session.setup import load_dealt, warm_up
from leapmpi.training.epoch_record import EpochMeter, EpochProgress, epoch_line, of_losses
from leapmpi.training.feature_cache import FeatureCache
from leapmpi.training.model_state import Best, State, evaluations_since, restore, save_weights, saved
from leapmpi.training.optimizer import Optimizer

log = logging.getLogger("leapmpi")


class IterationWatcher(Protocol):
    """Who is called around every iteration, to save checkpoints and to stop training. Collective."""

    def iteration_begins(self) -> None:
        """Before the iteration."""

    def iteration_ended(self, quiet: Callable[[], AbstractContextManager[None]]) -> None:
        """After it; in the context that `quiet` makes nobody else uses MPI."""

    def evaluation_round(self) -> AbstractContextManager[None]:
        """Around one batch of an evaluation."""
        ...


class Trainer:
    """Trains one model of a loaded dataset. All ranks do the same, but for what rank 0 alone writes.

    `begun` is when this start began, on the clock time.perf_counter. `build_trainer` (run_training.py) makes a whole
    one: what is left open by the settings is chosen there, and a saved state restored.
    """

    def __init__(self, config: Config, world: World, loaded: Loaded, begun: float) -> None:
        # What is trained, and where.
        self.config = config
        self.world = world
        self.loaded = loaded
        self.ctx = loaded.ctx
        self.begun = begun
        self.per_epoch = self.iterations()

        # What computes, scores and updates.
        self.engine = self.make_engine()
        self.feature_cache = FeatureCache(config, world, loaded, self.engine)
        self.evaluator = self.make_evaluator()
        learned, communicator = self.ctx.learned, self.ctx.communicator
        self.optimizer = Optimizer(config.train, self.ctx.parameters, self.per_epoch, learned, communicator)

        # Chosen by `prepare` (run_training.py), and what a checkpoint restores.
        self.prefetch_depth = 0
        self.predicted_bytes: dict[str, int] = {}
        """Bytes of the first iteration by exchange mode, where the mode was chosen."""
        self.strategy_choice: Choice | None = None
        """What `--strategy auto` chose, where it did."""
        self.started_from: dict[str, Any] | None = None
        """What `--init` took from another run, where it did."""
        self.part_dealing: PartDealing | None = None
        """How parts are dealt anew between epochs, with --balance-parts."""
        self.best = Best()
        self.epochs: list[dict[str, Any]] = []
        self.progress = EpochProgress(np.zeros(self.per_epoch))
        self.restarts = 0
        self.seconds_before = 0.0
        self.meter = EpochMeter(self.ctx.phases, self.ctx.communicator)
        self._watcher: IterationWatcher | None = None
        self._best_rows: dict[str, np.ndarray] = {}

    @property
    def root_count(self) -> int:
        """The number of roots of an epoch."""
        return len(self.loaded.dataset.splits.train)

    def make_engine(self) -> Engine:
        """What plans, fetches and computes the batches. Local."""
        return make_engine(self.ctx, self.config.strategy)

    def make_evaluator(self) -> Evaluator:
        """What scores the splits. Local."""
        return Evaluator(self.config, self.loaded.dataset, self.loaded.topology, self.ctx)

    def iterations(self) -> int:
        """The number of batches of every epoch. Local."""
        return self.ctx.sampler.iterations(self.loaded.dataset.splits.train, self.config.train.batch_size)

    def epoch_batches(self, epoch: int) -> Sequence[np.ndarray]:
        """The roots of every batch of `epoch`, in order. Local, called on rank 0."""
        train = self.config.train
        return self.ctx.sampler.batches(self.loaded.dataset.splits.train, train.seed, epoch, train.batch_size)

    def _deal_parts(self, dealing: PartDealing, epoch: int, seconds: list[float]) -> None:
        """After `epoch`, with the `seconds` that this rank computed and that it took, deal parts anew if it pays.

        Collective.
        """
        ctx, starts, begin, held = self.ctx, None, time.perf_counter(), self.loaded
        spent = ctx.communicator.all_gather_rows(np.array(seconds))
        dealing.seconds.append([*spent[:, 0].tolist(), float(spent[0, 1])])
        if self.world.rank == 0:
            starts = dealing.decide(self.engine, epoch + 1, self.config.train.epochs - epoch - 1)
            starts = np.empty(0, np.int64) if starts is None else starts
        starts = ctx.communicator.broadcast(starts, "control")
        if not len(starts):
            return
        moved = size_text(dealing.moved_bytes(starts, ctx.features.shard.row_bytes))
        with ctx.phases("load"):
            anew = load_dealt(self.config, self.world, held, starts)
            try:
                self._take_over(anew)
            except ResourceError as error:
                if self.world.rank == 0:
                    log.warning("warning: parts stay as they were dealt: %s", error)
                dealing.settled = True
                self._take_over(held)
                return
        dealing.take(starts)
        held_by, took = ", ".join(map(str, np.diff(starts).tolist())), time.perf_counter() - begin
        log.info("parts dealt anew: ranks hold %s; features of %s change ranks, %.2f s", held_by, moved, took)

    def _take_over(self, loaded: Loaded) -> None:
        """Go on with `loaded`, in which ranks are the homes of other parts. Collective.

        Raises ResourceError, on all ranks alike, where an iteration does not fit then.
        """
        before = self.engine
        self.loaded, self.ctx = loaded, loaded.ctx
        self.engine = self.make_engine()
        self.engine.tuning_log = before.tuning_log
        self.engine.restore({**before.state(), "decisions": []})
        self.feature_cache = FeatureCache(self.config, self.world, loaded, self.engine)
        batches, evaluation_round = self.planned_batches(0), self.evaluator.round
        self.evaluator = self.make_evaluator()
        self.evaluator.round = evaluation_round
        self.engine.plan(batches[0] if batches else None, 0, 0)
        self.dry_run_evaluation()

    @property
    def all_ranks_plan(self) -> bool:
        """Whether every rank plans a share of each batch, so that `epoch_batches` is collective. Local."""
        return False

    def planned_batches(self, epoch: int) -> Sequence[np.ndarray] | None:
        """The epoch's batches on rank 0, which plans; None elsewhere, unless all ranks plan. Collective then."""
        if self.world.rank != 0 and not self.all_ranks_plan:
            return None
        with self.ctx.phases("plan"):
            return self.epoch_batches(epoch)

    def choose_mode(self, batch: np.ndarray | None) -> dict[str, int]:
        """As `choose_mode` of the engine, given the first batch. Collective."""
        return choose_mode(self.engine, batch)

    def warm_up(self) -> None:
        """Compile kernels, each on one rank of a node. Local."""
        warm_up(self.world, self.ctx, self.config)

    def roles_record(self) -> dict[str, Any] | None:
        """What records say of ranks that prepare and ranks that compute; None where all do both. Local."""
        return None

    def sentences(self) -> list[str]:
        """What is told at the start, besides what the engine says. Local."""
        return []

    def dry_run(self, batch: np.ndarray | None) -> None:
        """Do what compiles the kernels of the first iteration and changes nothing. Collective.

        Raises TooLarge where it would take more memory than machines have left.
        """
        minibatch = self.engine.plan(batch, 0, 0)
        check_memory(self.engine, minibatch)
        self.engine.dry_run_of(minibatch)
        self.ctx.sampler.forget()

    def dry_run_evaluation(self) -> None:
        """The same for the kernels of an evaluation. Collective."""
        self.evaluator.dry_run()

    def run(self, folder: RunFolder, watcher: IterationWatcher) -> None:
        """Train all epochs that are left, record them in `folder` and write the weights there. Collective."""
        self._watcher = watcher
        self.evaluator.round = watcher.evaluation_round
        for epoch in range(self.progress.epoch, self.config.train.epochs):
            if self.stops_early:
                break
            record, compute = self.epoch(epoch), self.progress.phases["compute"]
            self.progress = EpochProgress(np.zeros(self.per_epoch), epoch + 1)
            if self.world.rank == 0:
                for decision in self.engine.tuning_log.take():
                    folder.record("decision", **decision.to_values())
                folder.record("epoch", **record)
                drop_figures_of_file(record)
                log.info(epoch_line(record, self.config.train.epochs, self.evaluator.metric.name))
            if self.part_dealing and not self.stops_early:
                self._deal_parts(self.part_dealing, epoch, [compute, record["seconds"]])
        self.ctx.phases.epoch = None
        final = self.ctx.parameters.by_name()
        if learned := self.ctx.learned:
            final |= learned.gathered(self.ctx.communicator)
            self._best_rows = learned.gathered(self.ctx.communicator, best=True)
        self.world.on_root(lambda: self._save(folder, final))

    def epoch(self, epoch: int) -> dict[str, Any]:
        """Train epoch number `epoch`, score the splits if it is time to, and return its record. Collective."""
        record = self.train_epoch(epoch)
        if self.evaluates(epoch):
            self._evaluate(epoch, record)
        self.epochs.append(record)
        return record

    def train_epoch(self, epoch: int) -> dict[str, Any]:
        """One pass over the roots. Returns its record without scores. Collective."""
        ctx, phases = self.ctx, self.ctx.phases
        phases.epoch = epoch
        if self.progress.epoch != epoch:
            self.progress = EpochProgress(np.zeros(self.per_epoch), epoch)
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
        return {
            "epoch": epoch,
            **self.losses_record(losses, epoch),
            **figures,
            "accuracy": {"val": None, "test": None},
            "time_steps": self.engine.placement.time_steps,
            "remote": self.engine.mode_name,
            "lr": self.optimizer.last_rate,
            "prefetch": self.prefetch_depth,
            **self.feature_cache.epoch(counts),
        }

    def _iterations(self, epoch: int) -> None:
        """The iterations of an epoch that are not done yet."""
        batches, progress, watcher = self.planned_batches(epoch), self.progress, self._watcher
        left = range(progress.iteration, self.per_epoch)
        tasks = [PrefetchTask(batches[iteration] if batches else None, epoch, iteration) for iteration in left]
        self.engine.expect([(task.batch, task.epoch, task.iteration) for task in tasks])
        name = f"epoch {epoch + 1}/{self.config.train.epochs}"
        with (
            step(name, self.per_epoch, "iterations", progress.iteration) as shown,
            prefetcher(self.engine, tasks, self.prefetch_depth) as ahead,
        ):
            for iteration in left:
                self.ctx.phases.iteration = iteration
                if watcher:
                    watcher.iteration_begins()
                minibatch = ahead.next()
                progress.losses[iteration] = self.train_iteration(minibatch, epoch * self.per_epoch + iteration)
                progress.iteration = iteration + 1
                if watcher:
                    watcher.iteration_ended(ahead.paused)
                shown.reach(iteration + 1)
        self.engine.expect(())
        self.ctx.phases.iteration = None

    def train_iteration(self, minibatch: MiniBatch, number: int) -> float:
        """Take the step of iteration `number`, counted over epochs; this rank's share of its loss. Collective."""
        parameters, phases = self.ctx.parameters, self.ctx.phases
        parameters.gradients.zero_()
        loss = self.engine.forward_backward(minibatch)
        with phases("reduce"):
            self.ctx.communicator.all_reduce(parameters.shared_gradients)
        with phases("compute"):
            self.optimizer.step(number)
        self.engine.placement.iteration_ended(minibatch)
        return loss

    def evaluates(self, epoch: int) -> bool:
        """Whether the splits are scored after `epoch`."""
        every, last = self.config.evaluate.every, self.config.train.epochs - 1
        return epoch == last or (every > 0 and (epoch + 1) % every == 0)

    @property
    def stops_early(self) -> bool:
        """Whether training ends before all epochs are done: --early-stop evaluations brought no better score.

        It follows from the records of the epochs, which checkpoints hold: a restart stops where a run without would.
        """
        limit = self.config.train.early_stop
        return 0 < limit <= self.evaluations_since_best

    @property
    def evaluations_since_best(self) -> int:
        """Evaluations since the last that brought a better validation score."""
        return evaluations_since(self.best.epoch, self.epochs)

    def _evaluate(self, epoch: int, record: dict[str, Any]) -> None:
        """Score the splits and keep the best model so far. Collective."""
        begin = time.perf_counter()
        with self.ctx.phases("evaluate"):
            scores = self.evaluator.scores()
            self.add_trivial(record)
        self.ctx.communicator.byte_counters.take()
        self.feature_cache.begin()
        record["accuracy"] = scores
        if self.evaluator.details:
            record["figures"] = self.evaluator.details
        record["evaluation_seconds"] = time.perf_counter() - begin
        if self.best.is_beaten_by(scores, self.evaluator.metric):
            with self.ctx.phases("evaluate"):
                found = self.evaluator.take_breakdown()
            record |= {"details": found} if found else {}
            weights = self.ctx.parameters.by_name()
            self.best = Best(epoch, scores["val"], scores["test"], weights if self.world.rank == 0 else {})
            if self.ctx.learned:
                self.ctx.learned.keep_best()

    def add_trivial(self, record: dict[str, Any]) -> None:
        """Add to the record of the first epoch that is scored what a model that learned nothing scores. Collective."""
        if not any("evaluation_seconds" in each for each in self.epochs):
            record["trivial"] = self.evaluator.trivial_scores()

    def run_seconds(self) -> float:
        """Seconds of the run so far, those of earlier starts up to their last checkpoint included."""
        return self.seconds_before + time.perf_counter() - self.begun

    def losses_record(self, losses: np.ndarray, epoch: int) -> dict[str, Any]:
        """What the record of `epoch` says of the losses of its batches, float64[iterations]; raises as `of_losses`."""
        # Batches that a sampler makes count alike.
        sizes = np.full(self.per_epoch, self.config.train.batch_size)
        if not self.ctx.sampler.supplies_roots:
            sizes[-1] = self.root_count - sizes[:-1].sum()
        return of_losses(losses, sizes, epoch)

    @property
    def models(self) -> list[tuple[Config, ParameterLayout]]:
        """The config and the parameters of each model that is trained."""
        return [(self.config, self.ctx.parameters)]

    def models_state(self) -> State:
        """What a checkpoint holds of the model. Collective."""
        return saved(self.ctx.parameters, *self.optimizer.state(), self.best)

    def restore_models(self, state: State, origin: str) -> None:
        """Take over what `models_state` gave, after `epochs`. Raises DataError when it does not fit. Local."""
        self.best = restore(self.ctx.parameters, self.optimizer, state, origin, self.world.rank == 0)

    def digest(self) -> str:
        """That of the parameters, and of the learned rows where there are any, on rank 0. Collective."""
        arrays = self.ctx.parameters.by_name()
        if self.ctx.learned:
            arrays |= self.ctx.learned.gathered(self.ctx.communicator)
        return digest(arrays)

    def _save(self, folder: RunFolder, final: dict[str, np.ndarray]) -> None:
        """Write weights into `folder`, even where it has vanished. Local."""
        if folder.make_again(self.config, self.epochs):
            log.warning(
                "warning: the run folder %s vanished; it was made again for its weights and epochs", folder.path
            )
        self.save(folder, final)

    def save(self, folder: RunFolder, final: dict[str, np.ndarray]) -> None:
        """Write the weights of the last and of the best epoch. Local."""
        best = replace(self.best, weights=self.best.weights | self._best_rows)
        save_weights(folder.path, self.config, self.loaded, self.epochs, final, best)
