"""EdgeTask: a task whose roots are edges. The model embeds their ends, a scorer reads pairs of embeddings."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from leapmpi.errors import DataError
from leapmpi.nn.task import Task

if TYPE_CHECKING:
    from leapmpi.config.schema import Config
    from leapmpi.dataset.partitioned import Dataset


class EdgeTask(Task):
    """Outputs of the model are as wide as hidden rows. The loss of pairs is computed by engine/edges/edge_loss.py."""

    roots = "edges"

    draws_negatives = False
    """Whether pairs that are no edges are scored too."""

    def __init__(self, config: Config, dataset: Dataset) -> None:
        """Raises DataError for a dataset without edges."""
        if not dataset.edges:
            raise DataError(f"{dataset.folder} has no edges, which --task {self.name} trains on")
        self.width, self.classes = config.model.hidden, dataset.classes
        self.link = config.link

    @abstractmethod
    def pair_loss(self, scores: Tensor, targets: Tensor, weight: float) -> Tensor:
        """Sum over pairs of weight x loss(pair), a scalar; `scores` are the scorer's. Local.

        targets: whether each pair is an edge, bool[pairs], or the class of each, int64[pairs].
        """

    def leaves_out(self) -> bool:
        """Whether message passing goes without the edges of the batch."""
        return self.link.target_edges != "keep"

    def label_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Labels of vertices are not read."""
        return torch.int64

    def loss(self, outputs: Tensor, labels: Tensor, weight: float | Tensor) -> Tensor:
        """A stand-in by which kernels are compiled and timed: embeddings alone have no loss."""
        return (outputs * outputs).sum() * (weight if isinstance(weight, float) else weight.mean())
