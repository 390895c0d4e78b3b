"""The area under the ROC curve of edges against negatives: the share of (edge, negative) pairs ranked rightly."""

from __future__ import annotations

import numpy as np

from leapmpi.scoring.edge_ranks import ABOVE, EdgeMetric
from leapmpi.scoring.metric import MetricMember


class Auc(EdgeMetric):
    """The AUC of every edge against the drawn negatives of all edges; ties count half."""

    def of_edges(self, outputs: np.ndarray) -> np.ndarray:
        """Return the share of the negatives below each."""
        return outputs[:, ABOVE]


MEMBER = MetricMember(Auc)
