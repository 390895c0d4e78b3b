"""The weights of a run in a model that is loaded for a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.errors import DataError
from leapmpi.exchange.context import Loaded
from leapmpi.features.learned_rows import without_rows
from leapmpi.nn.model import input_width
from leapmpi.runs.run import Run
from leapmpi.session.label_statistics import set_scale


def assign(config: Config, run: Run, loaded: Loaded, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
    """Give the model in `loaded` the weights of `run`. Raises DataError when they do not fit. Local."""
    dataset = loaded.dataset
    if about.get("task", task := loaded.ctx.task.name) != task:
        raise DataError(f"{run.path} was trained on the task {about['task']}, which is not {task}; give --task")
    width = input_width(config, dataset)
    classes = loaded.ctx.task.classes
    if (about["feature_dim"], about["classes"]) != (width, classes):
        raise DataError(
            f"{config.data} has {width} features and {classes} classes, the run was trained "
            f"on {about['feature_dim']} and {about['classes']}; evaluate it on its own dataset"
        )
    loaded.ctx.parameters.assign(without_rows(arrays), str(run.path))
    if loaded.ctx.learned:
        loaded.ctx.learned.assign(arrays, str(run.path))
    if scale := about.get("target_scale"):
        set_scale(loaded.ctx, np.array(scale))
