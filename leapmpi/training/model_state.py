"""Saved state of one model: parameters, optimizer and best weights in a checkpoint, and files of weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.engine.own_model import code_of
from leapmpi.errors import DataError
from leapmpi.exchange.context import Loaded
from leapmpi.nn.idle_biases import without_idle_biases
from leapmpi.nn.model import input_width
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.runs.file_names import WEIGHTS_BEST, WEIGHTS_FINAL
from leapmpi.runs.weights import write_weights
from leapmpi.scoring.metric import Metric
from leapmpi.session.label_statistics import scale_values
from leapmpi.training.optimizer import Optimizer


@dataclass
class Best:
    """The epoch whose model counts: the best on the validation set, or the last where there is none."""

    epoch: int = -1
    val: float | None = None
    test: float | None = None
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def is_beaten_by(self, scores: dict[str, float | None], metric: Metric) -> bool:
        """Return whether `scores` by `metric` replace these; chosen on validation, never on test."""
        return scores["val"] is None or metric.better(scores["val"], self.val)

    def to_values(self) -> dict[str, Any]:
        """Return epoch and scores, as files hold them."""
        return {"epoch": self.epoch, "val": self.val, "test": self.test}


def evaluations_since(epoch: int, records: Iterable[Mapping[str, Any]]) -> int:
    """Return how many evaluations came after that of `epoch`, by the records of all epochs."""
    return sum("evaluation_seconds" in each and each["epoch"] > epoch for each in records)


State = tuple[dict[str, np.ndarray], dict[str, Any]]
"""Arrays by name, and plain values."""


def saved(layout: ParameterLayout, tensors: Mapping[str, torch.Tensor], numbers: dict[str, float], best: Best) -> State:
    """Return one model's share of a checkpoint; `tensors` and `numbers` are its optimizer's `state`. Collective."""
    arrays = named("parameters", layout.by_name())
    for name, flat in tensors.items():
        arrays |= named(f"optimizer/{name}", layout.by_name(flat))
    arrays |= named("best", best.weights)
    return arrays, {"optimizer": {"tensors": list(tensors), "numbers": numbers}, "best": best.to_values()}


def restore(
    layout: ParameterLayout, optimizer: Optimizer | None, state: State, origin: str, keeps_best: bool = True
) -> Best:
    """Take up what `saved` gave, the optimizer's state where there is one; returns the best so far. Local.

    The best weights are returned where the caller `keeps_best`. Raises DataError, naming `origin`, when the state
    does not fit the model.
    """
    arrays, values = state
    layout.assign(below("parameters", arrays), origin)
    if best := without_idle_biases(layout.model, below("best", arrays)):
        layout.check_shapes(best, origin)
    # Checked before its tensors are read: names of another optimizer's state would be missing one by one.
    if optimizer:
        tensors = {}
        if "optimizer" not in values or not set(optimizer.state()[0]) <= set(values["optimizer"]["tensors"]):
            raise DataError(f"{origin}: the state of the optimizer is of another one than --optimizer names")
        for name in values["optimizer"]["tensors"]:
            tensors[name] = torch.empty_like(layout.values)
            layout.assign(below(f"optimizer/{name}", arrays), origin, tensors[name])
        optimizer.restore(tensors, values["optimizer"]["numbers"])
    scores = {name: values["best"][name] for name in ("epoch", "val", "test")}
    return Best(**scores, weights=best if keeps_best else {})


def named(group: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Put GROUP/ before the names of `arrays`."""
    return {f"{group}/{name}": array for name, array in arrays.items()}


def below(group: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the `arrays` named GROUP/NAME, by NAME."""
    return {name.removeprefix(f"{group}/"): array for name, array in arrays.items() if name.startswith(f"{group}/")}


def save_weights(
    path: Path,
    config: Config,
    loaded: Loaded,
    epochs: Sequence[Mapping[str, Any]],
    final: dict[str, np.ndarray],
    best: Best,
) -> None:
    """Write the weights of the last of `epochs` and of the best one into the run folder `path`."""
    about = _about(config, loaded)
    write_weights(path / WEIGHTS_FINAL, final, {**about, "epoch": epochs[-1]["epoch"]})
    save_best(path, config, loaded, best)


def save_best(path: Path, config: Config, loaded: Loaded, best: Best) -> None:
    """Write the weights of the best epoch into the run folder `path`."""
    write_weights(path / WEIGHTS_BEST, best.weights, {**_about(config, loaded), "epoch": best.epoch})


def _about(config: Config, loaded: Loaded) -> dict[str, Any]:
    """Return what a weights file says about its model and dataset."""
    dataset = loaded.dataset
    return {
        "config": config.to_values(),
        "code": code_of(config),
        "graph_uuid": dataset.graph_uuid,
        "feature_dim": input_width(config, dataset),
        "classes": loaded.ctx.task.classes,
        "task": loaded.ctx.task.name,
        "target_scale": scale_values(loaded.ctx),
    }
