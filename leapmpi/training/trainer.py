"""The training loop: epochs of iterations, then scores, records and weights."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from leapmpi.comm.byte_counters import KINDS, ROWS
from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.engine.context import Loaded
from leapmpi.engine.engine import Engine, make_engine
from leapmpi.engine.minibatch import MiniBatch
from leapmpi.engine.own_model import code_of
from leapmpi.engine.prefetch import Prefetcher, PrefetchTask, choose_depth
from leapmpi.engine.tuning import choose_mode, choose_placement
from leapmpi.errors import LeapmpiError
from leapmpi.nn.model import input_width
from leapmpi.nn.parameters import ParameterLayout, digest
from leapmpi.runs.file_names import WEIGHTS_BEST, WEIGHTS_FINAL
from leapmpi.runs.run_folder import RunFolder
from leapmpi.runs.weights import write_weights
from leapmpi.system.allocator import set_aside_lasting_objects
from leapmpi.training.epoch_record import EpochProgress, epoch_line, mean_and_max, work_ahead
from leapmpi.training.evaluation import Evaluator
from leapmpi.training.feature_cache import FeatureCache
from leapmpi.training.label_statistics import scale_values
from leapmpi.training.model_state import Best, State, evaluations_since, restore, saved
from leapmpi.training.optimizer import Optimizer
from leapmpi.training.setup import warm_up
from leapmpi.training.simulation.strategy_choice import Choice

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

        # Chosen by `prepare`, and what a checkpoint restores.
        self.prefetch_depth = 0
        self.predicted_bytes: dict[str, int] = {}
        """Bytes of the first iteration by exchange mode, where the mode was chosen."""
        self.strategy_choice: Choice | None = None
        """What `--strategy auto` chose, where it did."""
        self.started_from: dict[str, Any] | None = None
        """What `--init` took from another run, where it did."""
        self.best = Best()
        self.epochs: list[dict[str, Any]] = []
        self.progress = EpochProgress(np.zeros(self.per_epoch))
        self.restarts = 0
        self.seconds_before = 0.0
        self._watcher: IterationWatcher | None = None
        self._since: float | None = None
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

    def prepare(self, saved_choices: dict[str, Any] | None = None) -> None:
        """Compile all kernels, and choose what the settings leave open. Collective.

        `saved_choices` is the engine's state in the checkpoint of a run that is resumed.
        """
        with self.ctx.phases("load"):
            warm_up(self.world, self.ctx, self.config)
            batches = self._batches(0)
            first = batches[0] if batches else None

            # The cache is chosen first: it bears on the bytes by which a mode is chosen.
            if saved_choices is not None:
                self.engine.restore(saved_choices)
            self.feature_cache.choose()
            if saved_choices is None:
                self.predicted_bytes = choose_mode(self.engine, first)
            choose_placement(self.engine, first)
            self.feature_cache.fill()

            self.dry_run(first)
            self.dry_run_evaluation()
            self.ctx.features.errors.take()
            set_aside_lasting_objects()
        self.prefetch_depth = choose_depth(self.engine)

    def dry_run(self, batch: np.ndarray | None) -> None:
        """Do what compiles the kernels of the first iteration and changes nothing. Collective."""
        self.engine.dry_run(batch)

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
            record = self.epoch(epoch)
            self.progress = EpochProgress(np.zeros(self.per_epoch), epoch + 1)
            if self.world.rank == 0:
                for decision in self.engine.tuning_log.take():
                    folder.record("decision", **decision.to_values())
                folder.record("epoch", **record)
                log.info(epoch_line(record, self.config.train.epochs, self.evaluator.metric.name))
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
            phases.take()
            phases.take_ahead()
            ctx.communicator.byte_counters.take()
            self._since = phases.since
            processor = time.process_time()
            self._iterations(epoch)
            with phases("wait"):
                ctx.communicator.barrier()
            self.account()
        self._since = None
        return self._record(epoch, time.process_time() - processor)

    def _iterations(self, epoch: int) -> None:
        """The iterations of an epoch that are not done yet."""
        batches, progress, watcher = self._batches(epoch), self.progress, self._watcher
        left = range(progress.iteration, self.per_epoch)
        tasks = [PrefetchTask(batches[iteration] if batches else None, epoch, iteration) for iteration in left]
        with Prefetcher(self.engine, tasks, self.prefetch_depth) as prefetcher:
            for iteration in left:
                self.ctx.phases.iteration = iteration
                if watcher:
                    watcher.iteration_begins()
                minibatch = prefetcher.next()
                progress.losses[iteration] = self.train_iteration(minibatch, epoch * self.per_epoch + iteration)
                progress.iteration = iteration + 1
                if watcher:
                    watcher.iteration_ended(prefetcher.paused)
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

    def _batches(self, epoch: int) -> Sequence[np.ndarray] | None:
        """The epoch's batches on rank 0, which plans; None elsewhere."""
        if self.world.rank != 0:
            return None
        with self.ctx.phases("plan"):
            return self.epoch_batches(epoch)

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
        record["accuracy"] = scores
        if self.evaluator.details:
            record["figures"] = self.evaluator.details
        record["evaluation_seconds"] = time.perf_counter() - begin
        if self.best.is_beaten_by(scores, self.evaluator.metric):
            weights = self.ctx.parameters.by_name()
            self.best = Best(epoch, scores["val"], scores["test"], weights if self.world.rank == 0 else {})
            if self.ctx.learned:
                self.ctx.learned.keep_best()

    def add_trivial(self, record: dict[str, Any]) -> None:
        """Add to the record of the first epoch that is scored what a model that learned nothing scores. Collective."""
        if not any("evaluation_seconds" in each for each in self.epochs):
            record["trivial"] = self.evaluator.trivial_scores()

    def account(self) -> None:
        """Add what was spent and counted since the last call to the running epoch's progress. Local."""
        if self._since is not None:
            spent = self.ctx.phases.take()
            now = self.ctx.phases.since
            self.progress.add(now - self._since, spent, *self.ctx.communicator.byte_counters.take())
            self._since = now

    def run_seconds(self) -> float:
        """Seconds of the run so far, those of earlier starts up to their last checkpoint included."""
        return self.seconds_before + time.perf_counter() - self.begun

    def _record(self, epoch: int, processor_seconds: float) -> dict[str, Any]:
        """The record of a trained epoch, without scores. Collective."""
        processors = self.ctx.communicator.all_gather_rows(np.array([processor_seconds]))
        losses, counts, spent = self.progress.summed(self.ctx.communicator)
        ahead = work_ahead(self.ctx.phases, self.ctx.communicator)
        return {
            "epoch": epoch,
            "seconds": self.progress.seconds,
            # Of all ranks and threads, waiting included, since this start.
            "core_seconds": float(processors.sum()),
            **self.losses_record(losses),
            "accuracy": {"val": None, "test": None},
            "phases": mean_and_max(spent),
            "bytes": {kind: counts[kind] for kind in KINDS},
            "rows": {place: counts[place] for place in ROWS},
            "time_steps": self.engine.placement.time_steps,
            "remote": self.engine.mode_name,
            "lr": self.optimizer.last_rate,
            "prefetch": self.prefetch_depth,
            "ahead": ahead,
            **self.feature_cache.epoch(counts),
        }

    def losses_record(self, losses: np.ndarray) -> dict[str, Any]:
        """The mean loss over all roots of the epoch, and that of every batch, given the latter: float64[iterations].

        Raises LeapmpiError, the same on all ranks, for a loss that is no number any more.
        """
        if len(diverged := np.flatnonzero(~np.isfinite(losses))):
            assert self.ctx.phases.epoch is not None, "training has begun"
            error = LeapmpiError(
                f"the loss became infinite or undefined in epoch {self.ctx.phases.epoch + 1}, iteration "
                f"{diverged[0] + 1}; lower --lr, limit the gradient with --clip-norm, or look for odd features with "
                "leapmpi-prep check"
            )
            error.agreed = True
            raise error

        # The weight of each batch's loss in the epoch's; those that a sampler makes count alike.
        sizes = np.full(self.per_epoch, self.config.train.batch_size)
        if not self.ctx.sampler.supplies_roots:
            sizes[-1] = self.root_count - sizes[:-1].sum()
        return {"loss": float((losses * sizes).sum() / sizes.sum()), "losses": losses.tolist()}

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


def save_weights(
    path: Path,
    config: Config,
    loaded: Loaded,
    epochs: Sequence[Mapping[str, Any]],
    final: dict[str, np.ndarray],
    best: Best,
) -> None:
    """Write the weights of the last of `epochs` and of the best one into the run folder `path`."""
    dataset = loaded.dataset
    about = {
        "config": config.to_values(),
        "code": code_of(config),
        "graph_uuid": dataset.graph_uuid,
        "feature_dim": input_width(config, dataset),
        "classes": dataset.classes,
        "task": loaded.ctx.task.name,
        "target_scale": scale_values(loaded.ctx),
    }
    write_weights(path / WEIGHTS_FINAL, final, {**about, "epoch": epochs[-1]["epoch"]})
    write_weights(path / WEIGHTS_BEST, best.weights, {**about, "epoch": best.epoch})
