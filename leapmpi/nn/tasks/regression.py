"""Numbers, float[n, targets] with NaN for unknown ones: the loss is the squared or the absolute error.

Errors are in deviations of the target over the training vertices, and outputs stand for deviations from its mean: so
targets of any size are learned with the usual learning rates, and several count alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from leapmpi.errors import ConfigError
from leapmpi.nn.task import Task, TaskMember, weighted_total

if TYPE_CHECKING:
    from leapmpi.config.schema import Config
    from leapmpi.dataset.partitioned import Dataset


class Regression(Task):
    """The numbers of a root; the outputs are the answer."""

    reads = ("regression", "multi-label")
    answers = "regression"
    metric = "mse"
    trivial = "mean"
    columns = "targets"

    def __init__(self, config: Config, dataset: Dataset) -> None:
        super().__init__(config, dataset)
        if config.train.loss not in ("auto", "mse", "mae"):
            raise ConfigError(f"train.loss: {config.train.loss} is a loss of edges; give mse or mae")
        self.absolute = config.train.loss == "mae"

    def label_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the type of the model."""
        return dtype

    def loss(self, outputs: Tensor, labels: Tensor, weight: float | Tensor) -> Tensor:
        """Return the mean squared (mse) or absolute (mae) error over the columns of a root that are not NaN."""
        # Unknown targets have no error: NaN would spoil the gradient.
        known = ~labels.isnan()
        target = labels.to(outputs.dtype)
        if self.scale is not None:
            target = (target - self.scale[0]) / self.scale[1]
        errors = torch.where(known, target - outputs, 0)
        losses = errors.abs() if self.absolute else errors.square()
        return weighted_total(losses.sum(1) / known.sum(1).clamp(min=1), weight)

    def answer(self, outputs: Tensor) -> Tensor:
        """Return outputs float[n, targets] in the units of the targets."""
        return outputs if self.scale is None else outputs * self.scale[1] + self.scale[0]

    def label_sums(self, labels: np.ndarray) -> np.ndarray:
        """Sum each target, and count the vertices where it is known: float64[2, targets]."""
        return np.stack([np.nansum(labels, axis=0, dtype=np.float64), (~np.isnan(labels)).sum(axis=0)])

    def constant_answer(self, sums: np.ndarray) -> np.ndarray:
        """Return the mean of each target: float64[targets]."""
        return sums[0] / np.maximum(sums[1], 1)


MEMBER = TaskMember(Regression)
