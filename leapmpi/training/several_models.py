"""Training of several models that differ, on the same batches: one run folder, one part of it per model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.engine.engine import Engine
from leapmpi.engine.tuning import check_memory
from leapmpi.evaluation.evaluator import Evaluator
from leapmpi.exchange.context import Loaded
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.exchange.selection import bytes_by_mode, fewest_bytes
from leapmpi.nn.model import Model
from leapmpi.nn.parameters import ParameterLayout, digest
from leapmpi.runs.file_names import model_folder
from leapmpi.runs.over_seeds import mean_and_deviation
from leapmpi.runs.run_folder import RunFolder, without_losses
from leapmpi.scoring.metric import Metric, choose_metric
from leapmpi.system.atomic_files import remove
from leapmpi.training.ensemble_models import EnsembleModels
from leapmpi.training.epoch_record import of_losses
from leapmpi.training.model_state import (
    Best,
    State,
    below,
    evaluations_since,
    named,
    restore,
    save_best,
    save_weights,
    saved,
)
from leapmpi.training.optimizer import Optimizer, learning_rate
from leapmpi.training.trained_models import Record, Scores

_PER_MODEL = ("loss", "accuracy", "lr", "together")
"""Entries of an epoch's record for one model, besides its losses."""


@dataclass
class Replica:
    """One of the models: its config, label and results. `optimizer` is at its home only."""

    label: str
    config: Config
    layout: ParameterLayout
    optimizer: Optimizer | None
    losses: np.ndarray
    best: Best = field(default_factory=Best)
    epochs: list[Record] = field(default_factory=list)


class SeveralModels:
    """All models of `--vary`, each trained as its config would train it by itself.

    configs: by label, in the order of `models`. modes: the exchange modes that serve all models. sizes: int64[batches],
    the roots of each batch of an epoch.
    """

    def __init__(
        self,
        config: Config,
        loaded: Loaded,
        configs: Mapping[str, Config],
        models: Sequence[Model],
        modes: Sequence[str],
        sizes: np.ndarray,
    ) -> None:
        self.config, self.loaded, self.ctx, self._modes, self._sizes = config, loaded, loaded.ctx, modes, sizes
        self.metric: Metric = choose_metric(config.evaluate.metric, self.ctx.task)
        self.ensemble = EnsembleModels(self.ctx, models)
        self.best = Best()
        self.replicas = []
        for number, ((label, each), layout) in enumerate(zip(configs.items(), self.ensemble.layouts, strict=True)):
            # Each model's optimizer is on one rank, so that its state is held once.
            own_models = number in self.ensemble.own_models
            optimizer = Optimizer(each.train, layout, len(sizes)) if own_models else None
            self.replicas.append(Replica(label, each, layout, optimizer, np.zeros(len(sizes))))
        self._scores: Scores | None = None
        """Scores of the epoch in training, once there are any."""

    @property
    def described(self) -> list[tuple[Config, ParameterLayout]]:
        """Config and parameters of each model."""
        return [(replica.config, replica.layout) for replica in self.replicas]

    @property
    def last_rate(self) -> float:
        """0, since each model has its own learning rate."""
        return 0.0

    def choose_mode(self, engine: Engine, batch: np.ndarray | None) -> dict[str, int]:
        """Choose by the bytes of the first iteration what is fetched, once for all models. Collective."""
        if len(self._modes) == 1:
            return {}
        found = bytes_by_mode(engine.plan(batch, 0, 0), self.ctx, self._modes)
        engine.use_mode(fewest_bytes(found))
        return {name: int(counts.sum()) for name, counts in found.items()}

    def dry_run(self, engine: Engine, batch: np.ndarray | None) -> None:
        """Run the first iteration but for the optimizers' steps. Collective."""
        self.ensemble.use_mode(engine.mode_name)
        minibatch = engine.plan(batch, 0, 0)
        check_memory(engine, minibatch)
        engine.fetch(minibatch)
        self.ensemble.step(minibatch)
        self.ctx.sampler.forget()

    def dry_run_evaluation(self, evaluator: Evaluator) -> None:
        """Compile nothing: models are scored on what is fetched for all, as they are trained. Local."""

    def step(self, engine: Engine, minibatch: MiniBatch, number: int) -> float:
        """Take one step of every model; return this rank's share of their mean loss. Collective."""
        losses = self.ensemble.step(minibatch)
        for replica, loss in zip(self.replicas, losses, strict=True):
            replica.losses[number % len(self._sizes)] = loss
            if replica.optimizer:
                with self.ctx.phases("compute"):
                    replica.optimizer.step(number)
        return float(np.mean(losses))

    def scores(self, evaluator: Evaluator, remote: str) -> Scores:
        """Score every model, on inputs fetched by the mode `remote`. Collective."""
        self.ensemble.spread()
        return evaluator.scores_of([replica.layout.model for replica in self.replicas], remote)

    def keep_best(self, epoch: int, scores: Scores, evaluator: Evaluator) -> Record:
        """Keep each model whose scores are its best; return the scores of the best model. Collective."""
        self._scores = scores
        for replica, found in zip(self.replicas, scores, strict=True):
            if replica.best.is_beaten_by(found, self.metric):
                weights = replica.layout.by_name() if self.ctx.rank == 0 else {}
                replica.best = Best(epoch, found["val"], found["test"], weights)
        best = self.replicas[self.metric.best([replica.best.val for replica in self.replicas])].best
        self.best = Best(best.epoch, best.val, best.test)
        return {"accuracy": scores[self.metric.best([each["val"] for each in scores])]}

    def close_epoch(self, record: Record) -> None:
        """Add loss and scores of each model to `record`, as `models`, and keep a record of each. Collective."""
        unscored: dict[str, float | None] = {"val": None, "test": None}
        scores, self._scores = self._scores or [dict(unscored) for _ in self.replicas], None
        for replica, found in zip(self.replicas, scores, strict=True):
            replica.epochs.append(self._model_record(replica, record, found))
        last = [replica.epochs[-1] for replica in self.replicas]
        record["models"] = [
            {"model": replica.label, "loss": each["loss"], **each["accuracy"]}
            for replica, each in zip(self.replicas, last, strict=True)
        ]

    def _model_record(self, replica: Replica, record: Record, scores: dict[str, float | None]) -> Record:
        """Return what `record`, of all models together, would be for one. Collective."""
        losses, per_epoch = self.ctx.communicator.all_gather_rows(replica.losses).sum(axis=0), len(self._sizes)
        return {
            **_of_all(record),
            **of_losses(losses, self._sizes, record["epoch"]),
            "accuracy": scores,
            "lr": learning_rate(replica.config.train, (record["epoch"] + 1) * per_epoch - 1, per_epoch),
            "together": len(self.replicas),
        }

    def evaluations_since_best(self, epochs: Sequence[Record]) -> int:
        """Count the evaluations since any model improved: training goes on until it stops for every one. Local."""
        return min(evaluations_since(replica.best.epoch, epochs) for replica in self.replicas)

    def state(self) -> State:
        """Return the state of every model, gathered on this rank, with its losses and scores so far. Collective."""
        self.ensemble.spread()
        optimizers = self.ensemble.spread_state([replica.optimizer for replica in self.replicas])
        arrays: dict[str, np.ndarray] = {}
        models = []
        for number, (replica, optimizer) in enumerate(zip(self.replicas, optimizers, strict=True)):
            own, values = saved(replica.layout, *optimizer, replica.best)
            own["losses"] = self.ctx.communicator.all_gather_rows(replica.losses).sum(axis=0)
            own["epoch_losses"] = np.array([each["losses"] for each in replica.epochs]).reshape(-1, len(self._sizes))
            arrays |= named(f"models/{number}", own)
            models.append({**values, "epochs": [{key: each[key] for key in _PER_MODEL} for each in replica.epochs]})
        return arrays, {"models": models, "best": self.best.to_values()}

    def restore(self, state: State, epochs: Sequence[Record], origin: str) -> None:
        """Take over a `state`, after `epochs`. Raises DataError if it does not fit. Local."""
        arrays, values = state
        first, self.best = self.ctx.rank == 0, Best(**values["best"])
        for number, (replica, about) in enumerate(zip(self.replicas, values["models"], strict=True)):
            own = below(f"models/{number}", arrays)
            replica.best = restore(replica.layout, replica.optimizer, (own, about), origin, first)
            # Shares of a loss add up over ranks.
            replica.losses = own["losses"].copy() if first else np.zeros(len(self._sizes))
            replica.epochs = [
                {**_of_all(record), **each, "losses": losses.tolist()}
                for record, each, losses in zip(epochs, about["epochs"], own["epoch_losses"], strict=True)
            ]

    def saver(self) -> Callable[[RunFolder, Sequence[Record], float], None]:
        """Return a local function that writes a run folder for each model, as it would have left by itself."""

        def save(folder: RunFolder, epochs: Sequence[Record], seconds: float) -> None:
            for number, replica in enumerate(self.replicas):
                self._save_one(RunFolder(model_folder(folder.path, number)), replica, seconds)

        return save

    def _save_one(self, own: RunFolder, replica: Replica, seconds: float) -> None:
        final = replica.layout.by_name()
        # An earlier start of this run may have been ended while it wrote.
        remove(own.path)
        own.path.mkdir()
        config = replica.config.replaced({"run.folder": str(own.path)})
        own.start(config)
        for record in replica.epochs:
            own.record("epoch", **record)
        save_weights(own.path, config, self.loaded, replica.epochs, final, replica.best)
        epochs = without_losses(replica.epochs)
        own.finish({**self._about(replica, seconds), "parameters_digest": digest(final), "epochs": epochs})

    def _about(self, replica: Replica, seconds: float) -> dict[str, Any]:
        dataset = self.loaded.dataset
        return {
            "strategy": self.config.strategy.name,
            "varied": replica.label,
            "ranks": self.ctx.ranks,
            "graph_uuid": dataset.graph_uuid,
            "uuid": dataset.uuid,
            "model": replica.config.model.name,
            "metric": self.metric.name,
            "seconds": seconds,
            "best": replica.best.to_values(),
        }

    def save_best(self, folder: RunFolder, epoch: int) -> None:
        """Write config and weights of each model whose best epoch is `epoch`. On rank 0."""
        for number, replica in enumerate(self.replicas):
            if replica.best.epoch == epoch:
                own = RunFolder(model_folder(folder.path, number))
                own.path.mkdir(exist_ok=True)
                config = replica.config.replaced({"run.folder": str(own.path)})
                own.write_config(config)
                save_best(own.path, config, self.loaded, replica.best)

    def digest(self) -> str:
        """Return a digest of the parameters of all models. Local."""
        arrays = {f"{n}/{name}": a for n, r in enumerate(self.replicas) for name, a in r.layout.by_name().items()}
        return digest(arrays)

    def summary(self, seconds: float) -> Record:
        """Return a summary of each model, with mean and sample deviation of their best scores by split. Local.

        Splits without a score are left out.
        """
        scores = {split: [getattr(replica.best, split) for replica in self.replicas] for split in ("val", "test")}
        return {
            "models": [self._about(replica, seconds) for replica in self.replicas],
            "scores_of_models": {split: mean_and_deviation(each) for split, each in scores.items() if None not in each},
        }

    def sentences(self) -> list[str]:
        """Return a sentence with the labels of all models, and one about their epoch lines. Local."""
        labels = ", ".join(each.label for each in self.replicas)
        return [
            f"{len(self.replicas)} models that differ: {labels}",
            "epoch lines show the mean loss of the models, and the best scores",
        ]


def _of_all(record: Record) -> Record:
    """Return what an epoch's record holds for all of the models alike."""
    return {key: value for key, value in record.items() if key not in ("losses", "models", "by_rank")}
