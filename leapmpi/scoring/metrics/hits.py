"""Hits@K: the share of the edges that rank among the first K of their candidates. 20 is the metric of ogbl-ddi."""

from __future__ import annotations

from functools import partial

import numpy as np

from leapmpi.scoring.edge_ranks import RANK, EdgeMetric
from leapmpi.scoring.metric import MetricMember


class Hits(EdgeMetric):
    """The share of edges whose rank is at most `most`."""

    def __init__(self, most: int) -> None:
        self.most = most

    def of_edges(self, outputs: np.ndarray) -> np.ndarray:
        """Return 1 for each edge within the first `most`, else 0."""
        return outputs[:, RANK] <= self.most


MEMBER = MetricMember({f"hits-{most}": partial(Hits, most) for most in (1, 3, 10, 20, 50, 100)})
