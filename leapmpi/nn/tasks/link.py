"""Edges are roots: a scorer tells edges from negatives. No labels are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from leapmpi.dataset.hdf5.names import HELD_LABELS
from leapmpi.errors import ConfigError, DataError
from leapmpi.nn.pair_losses import PAIR_LOSSES
from leapmpi.nn.scorer import Scorer, build_scorer
from leapmpi.nn.task import EdgeTask, TaskMember

if TYPE_CHECKING:
    from leapmpi.config.schema import Config
    from leapmpi.dataset.partitioned import Dataset


class Link(EdgeTask):
    """Whether there is an edge."""

    answers = "edges"
    metric = "auc"
    trivial = "all pairs alike"
    draws_negatives = True

    def __init__(self, config: Config, dataset: Dataset) -> None:
        """Raise ConfigError, and DataError where the topology has the edges to be scored."""
        super().__init__(config, dataset)
        # Runs of earlier versions say `mse`, which was not read.
        if (loss := config.train.loss) == "mae":
            raise ConfigError(f"train.loss: {loss} is a loss of regressions; give one of {', '.join(PAIR_LOSSES)}")
        self._loss = PAIR_LOSSES.get(loss, PAIR_LOSSES["binary"])
        # A softmax is over all candidates, as published (1vsAll); other losses call each negative false by itself.
        self.known_are_negatives = loss == "cross-entropy"
        self.relations = 0 if dataset.types is None else len(dataset.types.relations)
        if dataset.edge_splits is not None and dataset.edge_splits.held == HELD_LABELS:
            raise DataError(
                f"{dataset.folder} holds back labels of edges alone, so that training would see the edges to be "
                "predicted; import the graph again with --split-edges, or give --task edge-class"
            )
        if not self.leaves_out():
            raise ConfigError("link.target_edges: with --task link a batch must not see its own edges; leave it out")

    def scorer(self) -> Scorer:
        """Build the scorer of the settings, by default the inner product, in a typed graph weighted by relation."""
        name = self.link.scorer if self.link.scorer != "auto" else "distmult" if self.relations else "dot"
        return build_scorer(name, self.width, relations=self.relations)

    def loss_of_edges(self, scores: Tensor, sources: int, labels: Tensor | None, batch: int) -> Tensor:
        """Return the mean over all pairs of the loss of the settings."""
        return 1.0 / (max(1, batch) * scores.shape[1]) * self._loss(scores, sources)

    def label_sums(self, labels: np.ndarray) -> np.ndarray:
        """Return nothing: edges have no labels."""
        return np.zeros(1, np.int64)

    def constant_answer(self, sums: np.ndarray) -> np.ndarray:
        """Return equal embeddings."""
        return np.zeros(self.width)


MEMBER = TaskMember(Link)
