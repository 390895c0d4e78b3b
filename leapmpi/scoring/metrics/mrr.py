"""Mean reciprocal rank of edges among their candidates; equal scores share their mean rank."""

from __future__ import annotations

import numpy as np

from leapmpi.scoring.edge_ranks import RANK, EdgeMetric
from leapmpi.scoring.metric import MetricMember


class MeanReciprocalRank(EdgeMetric):
    """The mean reciprocal rank: 1 where every edge is ahead of all its candidates."""

    def of_edges(self, outputs: np.ndarray) -> np.ndarray:
        """Return one over the rank."""
        return 1 / outputs[:, RANK]


MEMBER = MetricMember(MeanReciprocalRank)
