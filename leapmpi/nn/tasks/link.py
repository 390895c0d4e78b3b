"""Edges are roots: the model embeds their ends, a scorer tells edges from negatives. No labels are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from leapmpi.errors import ConfigError, DataError
from leapmpi.nn.scorer import Scorer, build_scorer
from leapmpi.nn.task import Task

if TYPE_CHECKING:
    from leapmpi.config.schema import Config
    from leapmpi.dataset.partitioned import Dataset


class Link(Task):
    """Whether there is an edge. The loss is leapmpi/engine/edges/edge_loss.py; outputs are as wide as hidden rows."""

    answers = "edges"
    metric = "auc"
    roots = "edges"
    trivial = "all pairs alike"

    def __init__(self, config: Config, dataset: Dataset) -> None:
        """Raises DataError for a dataset without edges, ConfigError for settings that do not go with edges."""
        if not dataset.edges:
            raise DataError(f"{dataset.folder} has no edges, which --task link trains on")
        if config.strategy.replicas != "equal":
            raise ConfigError("strategy.replicas: independent models train vertices; leave out --task link or --vary")
        self.width = config.model.hidden
        self._link = config.link

    def scorer(self) -> Scorer:
        """As the settings say."""
        return build_scorer(self._link, self.width)

    def label_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Labels of vertices are not read."""
        return torch.int64

    def loss(self, outputs: Tensor, labels: Tensor, weight: float | Tensor) -> Tensor:
        """A stand-in by which kernels are compiled and timed: embeddings alone have no loss."""
        return (outputs * outputs).sum() * (weight if isinstance(weight, float) else weight.mean())

    def label_sums(self, labels: np.ndarray) -> np.ndarray:
        """Nothing: edges have no labels."""
        return np.zeros(1, np.int64)

    def constant_answer(self, sums: np.ndarray) -> np.ndarray:
        """Equal embeddings."""
        return np.zeros(self.width)


TASK = Link
