"""The training loop: epochs of iterations, planned, fetched and stepped by the strategy; then scores and records."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.comm.byte_counters import KINDS, ROWS
from leapmpi.comm.world import World, on_all_ranks
from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.engine.context import Loaded
from leapmpi.engine.minibatch import MiniBatch
from leapmpi.engine.prefetch import Prefetcher, PrefetchTask, choose_depth
from leapmpi.engine.strategy import Strategy
from leapmpi.engine.tuning import settle_remote
from leapmpi.errors import LeapmpiError
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.registry import Registry
from leapmpi.runs.run_folder import WEIGHTS_BEST, WEIGHTS_FINAL, RunFolder
from leapmpi.runs.tables.sizes import size_text
from leapmpi.runs.weights import write_weights
from leapmpi.system.allocator import set_aside_lasting_objects
from leapmpi.system.phase_timers import PHASES
from leapmpi.training.checkpointer import Checkpointer
from leapmpi.training.evaluation import Evaluator
from leapmpi.training.feature_cache import FeatureCache
from leapmpi.training.model_state import Best, State, restore, saved
from leapmpi.training.optimizer import Optimizer
from leapmpi.training.progress import EpochProgress
from leapmpi.training.warm_up import warm_up

log = logging.getLogger("leapmpi")


class Trainer:
    """Trains the model of a loaded dataset; the same on every rank but for what rank 0 alone writes.

    Without a run `folder` nothing is recorded or saved.
    """

    def __init__(self, config: Config, world: World, loaded: Loaded, folder: RunFolder | None = None) -> None:
        kind = strategy_class(config.strategy.name)
        loaded = kind.place(config, world, loaded)
        self.config, self.world, self.loaded, self.folder = config, world, loaded, folder
        self.ctx = loaded.ctx
        self.train = loaded.dataset.splits.train
        self.per_epoch = self.ctx.sampler.iterations(self.train, config.train.batch_size)
        self.strategy = kind(self.ctx, config.strategy)
        self.feature_cache = FeatureCache(config, world, loaded, self.strategy)
        self.evaluator = Evaluator(config, loaded.dataset, loaded.topology, self.ctx)
        self.optimizer = Optimizer(config.train, self.ctx.parameters, self.per_epoch)
        self.prefetch = 0
        self.best = Best()
        self.predicted: dict[str, int] = {}
        self.epochs: list[dict[str, Any]] = []
        self.progress = EpochProgress.standing_at(0, self.per_epoch)
        self.checkpointer: Checkpointer | None = None
        self.restarts, self.seconds_before = 0, 0.0
        self.begun = time.perf_counter()
        self._since: float | None = None

    @property
    def models(self) -> list[tuple[Config, ParameterLayout]]:
        """The config and the parameters of each model that is trained."""
        return [(self.config, self.ctx.parameters)]

    def run(self) -> None:
        """Train all epochs, after `prepare`. Collective."""
        for epoch in range(self.progress.epoch, self.config.train.epochs):
            record = self.epoch(epoch)
            self.progress = EpochProgress.standing_at(epoch + 1, self.per_epoch)
            if self.world.rank == 0 and self.folder:
                for decision in self.strategy.tuning_log.take():
                    self.folder.record("decision", **decision.to_values())
                self.folder.record("epoch", **record)
                log.info(epoch_line(record, self.config.train.epochs, self.evaluator.metric))
        self.ctx.phases.epoch = None
        final = self.ctx.parameters.by_name()
        on_all_ranks(self.world, lambda: self._save(final) if self.world.rank == 0 and self.folder else None)

    def watched_by(self, checkpointer: Checkpointer) -> None:
        """Let `checkpointer` save checkpoints, and stop training when it is asked to."""
        self.checkpointer = checkpointer
        self.evaluator.round = checkpointer.evaluation_round

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

    def prepare(self, settled: dict[str, Any] | None = None) -> None:
        """Compile all kernels and settle what crosses ranks, before the clock runs. Collective.

        `settled` is the strategy's state in the checkpoint of a run that is resumed.
        """
        with self.ctx.phases("load"):
            warm_up(self.world, self.ctx, self.config)
            epoch = self._batches(0)
            first = epoch[0] if epoch else None
            if settled is not None:
                self.strategy.restore(settled)
            self.feature_cache.choose()
            if settled is None:
                self.predicted = settle_remote(self.strategy, first)
            self.strategy.settle(first)
            self.feature_cache.fill()
            self.rehearse(first)
            self.ctx.features.errors.take()
            set_aside_lasting_objects()
        self.prefetch = choose_depth(self.strategy)

    def epoch(self, epoch: int) -> dict[str, Any]:
        """Train epoch number `epoch`, score the splits if it is time to, and return its record. Collective."""
        record = self._train(epoch)
        if self._evaluates(epoch):
            self._evaluate(epoch, record)
        self.epochs.append(record)
        return record

    def _train(self, epoch: int) -> dict[str, Any]:
        """One pass over the training vertices. Returns its record without scores."""
        phases = self.ctx.phases
        phases.epoch = epoch
        if self.progress.epoch != epoch:
            self.progress = EpochProgress.standing_at(epoch, self.per_epoch)
        with phases("wait"):
            self.ctx.communicator.barrier()
        # What the loop does between phases counts as computing, so that phases add up to the epoch.
        with phases("compute"):
            phases.take()
            phases.take_ahead()
            self.ctx.communicator.byte_counters.take()
            self._since, processor = phases.since, time.process_time()
            self._iterations(epoch)
            with phases("wait"):
                self.ctx.communicator.barrier()
            self.account()
        self._since = None
        processors = self.ctx.communicator.all_gather_rows(np.array([time.process_time() - processor]))
        losses, counts, spent = self.progress.summed(self.ctx.communicator)
        ahead = self._ahead()
        return {
            "epoch": epoch,
            "seconds": self.progress.seconds,
            # Of all ranks and threads, waiting included, since this start.
            "core_seconds": float(processors.sum()),
            **self._loss(losses),
            "accuracy": {"val": None, "test": None},
            "phases": _mean_and_max(spent),
            "bytes": {kind: counts[kind] for kind in KINDS},
            "rows": {place: counts[place] for place in ROWS},
            "time_steps": self.strategy.time_steps,
            "remote": self.strategy.remote_name,
            "lr": self.optimizer.last_rate,
            "prefetch": self.prefetch,
            "ahead": ahead,
            **self.feature_cache.epoch(counts),
        }

    def _iterations(self, epoch: int) -> None:
        """The iterations of an epoch that are not done yet."""
        parts, progress, checkpointer = self._batches(epoch), self.progress, self.checkpointer
        to_do = range(progress.iteration, self.per_epoch)
        jobs = [PrefetchTask(parts[iteration] if parts else None, epoch, iteration) for iteration in to_do]
        with Prefetcher(self.strategy, jobs, self.prefetch) as ahead:
            for iteration in to_do:
                self.ctx.phases.iteration = iteration
                if checkpointer:
                    checkpointer.iteration_begins()
                progress.losses[iteration] = self.update(ahead.next(), epoch * self.per_epoch + iteration)
                progress.iteration = iteration + 1
                if checkpointer:
                    checkpointer.iteration_ended(ahead.paused)
        self.ctx.phases.iteration = None

    def update(self, minibatch: MiniBatch, number: int) -> float:
        """Take the step of iteration `number`, counted over epochs; this rank's share of its loss. Collective."""
        loss = self.strategy.step(minibatch)
        with self.ctx.phases("compute"):
            self.optimizer.step(number)
        return loss

    def rehearse(self, batch: np.ndarray | None) -> None:
        """Do what compiles the kernels of the first iteration and changes nothing. Collective."""
        self.strategy.rehearse(batch)

    def models_state(self) -> State:
        """What a checkpoint holds of the model. Collective."""
        return saved(self.ctx.parameters, *self.optimizer.state(), self.best)

    def restore_models(self, state: State, origin: str) -> None:
        """Take up what `models_state` gave, after `epochs`. Raises DataError when it does not fit. Local."""
        self.best = restore(self.ctx.parameters, self.optimizer, state, origin, self.world.rank == 0)

    def about_models(self) -> dict[str, Any]:
        """What the summary adds where there are several models."""
        return {}

    def digest(self) -> str:
        """That of the parameters. Collective."""
        return self.ctx.parameters.digest()

    def _batches(self, epoch: int) -> Sequence[np.ndarray] | None:
        """The epoch's batches on rank 0, which plans; None elsewhere."""
        if self.world.rank != 0:
            return None
        with self.ctx.phases("plan"):
            train = self.config.train
            return self.ctx.sampler.batches(self.train, train.seed, epoch, train.batch_size)

    def _loss(self, total: np.ndarray) -> dict[str, Any]:
        """The mean loss over all roots of the epoch, and that of every batch, given the latter: float64[iterations]."""
        if not np.isfinite(total).all():
            raise self._diverged(int(np.flatnonzero(~np.isfinite(total))[0]))
        sizes = self._sizes()
        return {"loss": float((total * sizes).sum() / sizes.sum()), "losses": total.tolist()}

    def _sizes(self) -> np.ndarray:
        """int64[iterations]: how much the batches' losses count in the epoch's. Batches of the sampler's own, whose
        losses it weighs, count alike."""
        sizes = np.full(self.per_epoch, self.config.train.batch_size)
        if not self.ctx.sampler.supplies_roots:
            sizes[-1] = len(self.train) - sizes[:-1].sum()
        return sizes

    def _diverged(self, iteration: int) -> LeapmpiError:
        """The error for a loss that is no number any more; all ranks see the same one."""
        epoch = self.ctx.phases.epoch + 1
        error = LeapmpiError(
            f"the loss became infinite or undefined in epoch {epoch}, iteration {iteration + 1}; "
            "lower --lr, limit the gradient with --clip-norm, or look for odd features with leapmpi-prep check"
        )
        error.agreed = True
        return error

    def _ahead(self) -> dict[str, Any]:
        """Seconds spent on work ahead of training since this epoch, or start, began, by phase; and how many of them
        were hidden: spent while training did something else than wait. Collective."""
        spent, hidden = self.ctx.phases.take_ahead()
        seconds = self.ctx.communicator.all_gather_rows(np.array([*(spent[phase] for phase in PHASES), hidden]))
        return {"phases": _mean_and_max(seconds[:, :-1]), "hidden": float(seconds[:, -1].mean())}

    def _evaluates(self, epoch: int) -> bool:
        every, last = self.config.evaluate.every, self.config.train.epochs - 1
        return epoch == last or (every > 0 and (epoch + 1) % every == 0)

    def _evaluate(self, epoch: int, record: dict[str, Any]) -> None:
        """Score the splits and keep the best model so far. Collective."""
        begin = time.perf_counter()
        with self.ctx.phases("evaluate"):
            scores = self.evaluator.scores()
        self.ctx.communicator.byte_counters.take()
        record["accuracy"] = scores
        record["evaluation_seconds"] = time.perf_counter() - begin
        if self.best.is_beaten_by(scores):
            weights = self.ctx.parameters.by_name()
            self.best = Best(epoch, scores["val"], scores["test"], weights if self.world.rank == 0 else {})

    def _save(self, final: dict[str, np.ndarray]) -> None:
        save_weights(self.folder.path, self.config, self.loaded.dataset, final, self.best)


def save_weights(path: Path, config: Config, dataset: Dataset, final: dict[str, np.ndarray], best: Best) -> None:
    """Write the weights of the last and of the best epoch into the run folder `path`."""
    about = {
        "config": config.to_values(),
        "graph_uuid": dataset.graph_uuid,
        "feature_dim": dataset.feature_dim,
        "classes": dataset.classes,
    }
    write_weights(path / WEIGHTS_FINAL, final, {**about, "epoch": config.train.epochs - 1})
    write_weights(path / WEIGHTS_BEST, best.weights, {**about, "epoch": best.epoch})


def _mean_and_max(seconds: np.ndarray) -> dict[str, dict[str, float]]:
    """Over the ranks, by phase, of float64[ranks, phases]."""
    return {
        phase: {"mean": float(column.mean()), "max": float(column.max())}
        for phase, column in zip(PHASES, seconds.T, strict=True)
    }


def strategy_class(name: str) -> type[Strategy]:
    """The strategy called `name`. Raises ConfigError for an unknown one."""
    return Registry("strategy", "leapmpi.strategies").load(name).STRATEGY


def epoch_line(record: dict[str, Any], epochs: int, metric: str) -> str:
    """One line for people: `epoch 3/10  loss 1.2345  accuracy val 0.8120 test 0.8010  2.31 s  ...`."""
    text = f"epoch {record['epoch'] + 1}/{epochs}  loss {record['loss']:.4f}"
    known = {split: score for split, score in record["accuracy"].items() if score is not None}
    if known:
        text += f"  {metric} " + " ".join(f"{split} {score:.4f}" for split, score in known.items())
    rows = record["rows"]
    remote = rows["remote"] / max(1, sum(rows.values()))
    text += f"  {record['seconds']:.2f} s  remote rows {remote:.0%}"
    if cache := record.get("cache"):
        text += f" (cache spared {cache['hit_rate']:.0%})"
    text += f"  sent {size_text(sum(record['bytes'].values()))}"
    spent = {phase: times["mean"] for phase, times in record["phases"].items() if times["mean"] >= 0.005}
    if spent:
        text += "  (" + " ".join(f"{phase} {seconds:.2f}" for phase, seconds in spent.items()) + ")"
    if record.get("prefetch"):
        ahead = record["ahead"]
        text += f"  ahead {ahead_seconds(ahead):.2f} s, {ahead['hidden']:.2f} of them hidden"
    return text


def ahead_seconds(ahead: dict[str, Any]) -> float:
    """Seconds, mean over ranks, that an epoch's record says were spent ahead of training."""
    return sum(times["mean"] for times in ahead["phases"].values())
