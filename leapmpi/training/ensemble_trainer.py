"""Training of several models that differ, on the same batches: one run folder, one part of it per model."""

from __future__ import annotations

import logging
import statistics
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from leapmpi.comm.world import World
from leapmpi.config.schema import Config, variations
from leapmpi.engine.tuning import check_memory
from leapmpi.exchange.context import Loaded
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.exchange.selection import bytes_by_mode, fewest_bytes, leading_model, modes_for
from leapmpi.nn.model import model_of
from leapmpi.nn.parameters import ParameterLayout, digest
from leapmpi.runs.file_names import model_folder
from leapmpi.runs.run_folder import RunFolder, without_losses
from leapmpi.system.atomic_files import remove
from leapmpi.training.ensemble_models import EnsembleModels
from leapmpi.training.model_state import Best, State, below, evaluations_since, named, restore, save_weights, saved
from leapmpi.training.optimizer import Optimizer, learning_rate
from leapmpi.training.trainer import Trainer

log = logging.getLogger("leapmpi")

_PER_MODEL = ("loss", "accuracy", "lr", "together")
"""What the record of an epoch says of one model besides its losses."""

_OF_EVALUATION = ("evaluation_seconds", "trivial")
"""What the record of an epoch says of its evaluation, besides the scores."""


@dataclass
class Replica:
    """One of the models: its own config, what it is called, and what came of it. `optimizer` is at its home only."""

    label: str
    config: Config
    layout: ParameterLayout
    optimizer: Optimizer | None
    losses: np.ndarray
    best: Best = field(default_factory=Best)
    epochs: list[dict[str, Any]] = field(default_factory=list)


class ReplicaTrainer(Trainer):
    """Trains all models of `config.strategy.vary`; each as its config would train it by itself."""

    def __init__(self, config: Config, world: World, loaded: Loaded, begun: float) -> None:
        configs = variations(config)
        models = [model_of(each, loaded.dataset).to(loaded.ctx.device) for each in configs.values()]
        leading, self._modes = models[leading_model(models)], modes_for(models, loaded.ctx.features, config)
        fetching = config.replaced({"strategy.remote": self._modes[-1]})
        super().__init__(fetching, world, replace(loaded, ctx=replace(loaded.ctx, model=leading)), begun)
        self.config = config
        self.ensemble = EnsembleModels(self.ctx, models)
        self.replicas = []
        for number, ((label, each), layout) in enumerate(zip(configs.items(), self.ensemble.layouts, strict=True)):
            at_home = number in self.ensemble.at_home
            optimizer = Optimizer(each.train, layout, self.per_epoch) if at_home else None
            self.replicas.append(Replica(label, each, layout, optimizer, np.zeros(self.per_epoch)))

    @property
    def models(self) -> list[tuple[Config, ParameterLayout]]:
        return [(replica.config, replica.layout) for replica in self.replicas]

    @property
    def evaluations_since_best(self) -> int:
        """That of the model that improved last: training goes on for all until it stops for every one."""
        return min(evaluations_since(replica.best.epoch, self.epochs) for replica in self.replicas)

    def choose_mode(self, batch: np.ndarray | None) -> dict[str, int]:
        """Choose by the bytes of the first iteration what is fetched, once for all models. Collective."""
        if len(self._modes) == 1:
            return {}
        found = bytes_by_mode(self.engine.plan(batch, 0, 0), self.ctx, self._modes)
        self.engine.use_mode(fewest_bytes(found))
        return {name: int(counts.sum()) for name, counts in found.items()}

    def dry_run(self, batch: np.ndarray | None) -> None:
        """All of the first iteration but the optimizers' steps. Collective."""
        self.ensemble.use_mode(self.engine.mode_name)
        minibatch = self.engine.plan(batch, 0, 0)
        check_memory(self.engine, minibatch)
        self.engine.fetch(minibatch)
        self.ensemble.step(minibatch)

    def dry_run_evaluation(self) -> None:
        """Nothing: models that differ are scored on what is fetched for all, as they are trained."""

    def train_iteration(self, minibatch: MiniBatch, number: int) -> float:
        """One step of every model; returns this rank's share of their mean loss. Collective."""
        losses = self.ensemble.step(minibatch)
        for replica, loss in zip(self.replicas, losses, strict=True):
            replica.losses[number % self.per_epoch] = loss
            if replica.optimizer:
                with self.ctx.phases("compute"):
                    replica.optimizer.step(number)
        return float(np.mean(losses))

    def epoch(self, epoch: int) -> dict[str, Any]:
        """As of every trainer; `models` in the record holds loss and scores of each. Collective."""
        record = self.train_epoch(epoch)
        records = [self._model_record(replica, record) for replica in self.replicas]
        if self.evaluates(epoch):
            self._evaluate_all(epoch, record, records)
        for replica, each in zip(self.replicas, records, strict=True):
            replica.epochs.append(each)
        record["models"] = [
            {"model": replica.label, "loss": each["loss"], **each["accuracy"]}
            for replica, each in zip(self.replicas, records, strict=True)
        ]
        self.epochs.append(record)
        return record

    def _model_record(self, replica: Replica, record: dict[str, Any]) -> dict[str, Any]:
        """What `record`, of all models together, would say of one. Collective."""
        losses = self.ctx.communicator.all_gather_rows(replica.losses).sum(axis=0)
        rate = learning_rate(replica.config.train, (record["epoch"] + 1) * self.per_epoch - 1, self.per_epoch)
        return {
            **_of_all(record),
            **self.losses_record(losses, record["epoch"]),
            "accuracy": {"val": None, "test": None},
            "lr": rate,
            "together": len(self.replicas),
        }

    def _evaluate_all(self, epoch: int, record: dict[str, Any], records: list[dict[str, Any]]) -> None:
        begin, metric = time.perf_counter(), self.evaluator.metric
        with self.ctx.phases("evaluate"):
            self.ensemble.spread()
            models = [replica.layout.model for replica in self.replicas]
            scores = self.evaluator.scores_of(models, self.engine.mode_name)
            self.add_trivial(record)
        self.ctx.communicator.byte_counters.take()
        record["evaluation_seconds"] = time.perf_counter() - begin
        for replica, each, found in zip(self.replicas, records, scores, strict=True):
            each |= {"accuracy": found} | {key: record[key] for key in _OF_EVALUATION if key in record}
            if replica.best.is_beaten_by(found, metric):
                weights = replica.layout.by_name() if self.world.rank == 0 else {}
                replica.best = Best(epoch, found["val"], found["test"], weights)
        best = self.replicas[metric.best([replica.best.val for replica in self.replicas])].best
        self.best = Best(best.epoch, best.val, best.test)
        record["accuracy"] = scores[metric.best([each["val"] for each in scores])]

    def models_state(self) -> State:
        """The state of every model, all brought to this rank, with its losses and scores so far. Collective."""
        self.ensemble.spread()
        optimizers = self.ensemble.spread_state([replica.optimizer for replica in self.replicas])
        arrays: dict[str, np.ndarray] = {}
        models = []
        for number, (replica, optimizer) in enumerate(zip(self.replicas, optimizers, strict=True)):
            own, values = saved(replica.layout, *optimizer, replica.best)
            own["losses"] = self.ctx.communicator.all_gather_rows(replica.losses).sum(axis=0)
            own["epoch_losses"] = np.array([each["losses"] for each in replica.epochs]).reshape(-1, self.per_epoch)
            arrays |= named(f"models/{number}", own)
            models.append({**values, "epochs": [{key: each[key] for key in _PER_MODEL} for each in replica.epochs]})
        return arrays, {"models": models, "best": self.best.to_values()}

    def restore_models(self, state: State, origin: str) -> None:
        """Take up what `models_state` gave, after `epochs`. Raises DataError when it does not fit. Local."""
        arrays, values = state
        first, self.best = self.world.rank == 0, Best(**values["best"])
        for number, (replica, about) in enumerate(zip(self.replicas, values["models"], strict=True)):
            own = below(f"models/{number}", arrays)
            replica.best = restore(replica.layout, replica.optimizer, (own, about), origin, first)
            # Shares of a loss add up over ranks.
            replica.losses = own["losses"].copy() if first else np.zeros(self.per_epoch)
            replica.epochs = [
                {**_of_all(record), **each, "losses": losses.tolist()}
                for record, each, losses in zip(self.epochs, about["epochs"], own["epoch_losses"], strict=True)
            ]

    def save(self, folder: RunFolder, final: dict[str, np.ndarray]) -> None:
        """Write a run folder for each model, such as it would have left by itself. Local."""
        for number, replica in enumerate(self.replicas):
            own, final = RunFolder(model_folder(folder.path, number)), replica.layout.by_name()
            # An earlier start of this run may have been ended while it wrote.
            remove(own.path)
            own.path.mkdir()
            config = replica.config.replaced({"run.folder": str(own.path)})
            own.start(config)
            for record in replica.epochs:
                own.record("epoch", **record)
            save_weights(own.path, config, self.loaded, replica.epochs, final, replica.best)
            epochs = without_losses(replica.epochs)
            own.finish({**self._about(replica), "parameters_digest": digest(final), "epochs": epochs})

    def _about(self, replica: Replica) -> dict[str, Any]:
        dataset = self.loaded.dataset
        return {
            "strategy": self.config.strategy.name,
            "varied": replica.label,
            "ranks": self.world.size,
            "graph_uuid": dataset.graph_uuid,
            "uuid": dataset.uuid,
            "model": replica.config.model.name,
            "metric": self.evaluator.metric.name,
            "seconds": self.run_seconds(),
            "best": replica.best.to_values(),
        }

    def about_models(self) -> list[dict[str, Any]]:
        """What the summary of the whole run says of each model."""
        return [self._about(replica) for replica in self.replicas]

    def scores_of_models(self) -> dict[str, dict[str, float]]:
        """Mean and sample deviation of the models' best scores by split; splits without a score are left out."""
        scores = {split: [getattr(replica.best, split) for replica in self.replicas] for split in ("val", "test")}
        return {
            split: {"mean": statistics.mean(each), "deviation": statistics.stdev(each) if len(each) > 1 else 0.0}
            for split, each in scores.items()
            if None not in each
        }

    def digest(self) -> str:
        arrays = {f"{n}/{name}": a for n, r in enumerate(self.replicas) for name, a in r.layout.by_name().items()}
        return digest(arrays)


def _of_all(record: dict[str, Any]) -> dict[str, Any]:
    """What an epoch's record says that holds for each of the models."""
    return {key: value for key, value in record.items() if key not in ("losses", "models", "by_rank")}
