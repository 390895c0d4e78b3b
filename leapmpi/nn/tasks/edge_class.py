"""Edges are roots, and each has one class, int32[m] in [0, classes), or -1, unlabelled: the loss is the cross-entropy.

The edges of a batch stay in message passing unless `link.target_edges` says otherwise: which edges exist is known of
those that are to be classified too, and no layer reads labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from leapmpi.errors import DataError
from leapmpi.nn.scorer import Scorer, build_scorer
from leapmpi.nn.task import EdgeTask, TaskMember
from leapmpi.nn.tasks.multi_class import MultiClass

if TYPE_CHECKING:
    from leapmpi.config.schema import Config
    from leapmpi.dataset.partitioned import Dataset


class EdgeClass(EdgeTask, MultiClass):
    """The class of an edge; the largest score is the answer."""

    reads_edge_labels = True

    def __init__(self, config: Config, dataset: Dataset) -> None:
        """Raise DataError for a dataset whose edges have no labels."""
        super().__init__(config, dataset)
        if not dataset.edge_classes:
            raise DataError(f"{dataset.folder} has no labels of edges; import the graph again with --edge-labels")
        self.classes = dataset.edge_classes

    def leaves_out(self) -> bool:
        return self.link.target_edges == "leave-out"

    def scorer(self) -> Scorer:
        """Build the scorer of the settings, by default an MLP."""
        return build_scorer(self.link.scorer if self.link.scorer != "auto" else "mlp", self.width, self.classes)

    def loss_of_edges(self, scores: Tensor, sources: int, labels: Tensor | None, batch: int) -> Tensor:
        """Return the mean cross-entropy, times the weight of the edge's class."""
        assert labels is not None, "edges have classes"
        return MultiClass.loss(self, scores, labels, 1.0 / max(1, batch))


MEMBER = TaskMember(EdgeClass)
