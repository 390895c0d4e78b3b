"""Saved weights of runs, read and given to models that are loaded for a dataset: how `evaluate`, `predict` start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.engine.own_model import changed_code
from leapmpi.errors import DataError, counted
from leapmpi.exchange.context import Loaded
from leapmpi.features.learned_rows import ROWS, without_rows
from leapmpi.nn.model import input_width
from leapmpi.runs import schemas
from leapmpi.runs.run import Run
from leapmpi.runs.weights import read_weights, weights_place
from leapmpi.session.label_statistics import set_scale

if TYPE_CHECKING:
    from leapmpi.comm.world import World


@dataclass(frozen=True, eq=False)
class SavedModel:
    """Weights of `run` by name, with what their file says `about` them, and the config to use them by."""

    config: Config
    run: Run
    arrays: dict[str, np.ndarray]
    about: dict[str, Any]

    @property
    def epoch(self) -> int:
        """Epoch of the weights, counted from 1."""
        return int(self.about["epoch"]) + 1

    def give_to(self, loaded: Loaded) -> None:
        """Give the model in `loaded` these weights. Raises DataError when they do not fit. Local."""
        task, about = loaded.ctx.task, self.about
        if about.get("task", task.name) != task.name:
            raise DataError(
                f"{self.run.path} was trained on the task {about['task']}, which is not {task.name}; give --task"
            )
        width = input_width(self.config, loaded.dataset)
        # Shapes alone would name a parameter; the sentence here names the dataset.
        if (about["feature_dim"], about["classes"]) != (width, task.classes):
            raise DataError(
                f"{self.config.data} has {counted(width, 'feature')} and {counted(task.classes, 'class')}, the run "
                "was trained "
                f"on {about['feature_dim']} and {about['classes']}; evaluate it on its own dataset"
            )
        # Learned rows are no parameters of the model: their owners take them.
        loaded.ctx.parameters.assign(without_rows(self.arrays), str(self.run.path))
        if loaded.ctx.learned:
            loaded.ctx.learned.assign(self.arrays, str(self.run.path))
        if scale := about.get("target_scale"):
            set_scale(loaded.ctx, np.array(scale))


def read_models(world: World, runs: Iterable[tuple[Config, Run]], which: str) -> list[SavedModel]:
    """Read the weights `which` (best, final, or a file) of `runs`, each with a config. Collective.

    Raises ConfigError and DataError, on all ranks alike, for weights that are missing or damaged.
    """

    def read() -> Iterator[SavedModel]:
        for config, run in runs:
            yield SavedModel(config, run, *read_weights(weights_place(run.path, which), schemas.WEIGHTS, [ROWS]))

    return world.on_all(lambda: list(read()))


def without_training(config: Config, keeps_sampler: bool = False) -> Config:
    """Return `config` without what acts on training alone; draws are node-wise unless the sampler is kept."""
    draws = {} if keeps_sampler else {"sampling.sampler": "node-wise", "sampling.options": ()}
    return config.replaced({**draws, "train.class_weights": ""})


def notes(models: Sequence[SavedModel], loaded: Loaded) -> list[str]:
    """Return notes on another graph, or other code, than those of training. Local."""
    first, found = models[0], []
    if first.about["graph_uuid"] != loaded.dataset.graph_uuid:
        found = [f"{first.config.data} holds another graph than the one the run was trained on"]
    return [*found, *dict.fromkeys(each for model in models for each in changed_code(model.config, model.about))]
