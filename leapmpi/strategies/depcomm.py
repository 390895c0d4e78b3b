"""`depcomm`: full batch; each rank computes every layer for its own vertices, and hidden rows cross ranks.

DepComm of NeutronStar (SIGMOD 2022): nothing is computed twice, and every layer sends the rows that other ranks read.
"""

from __future__ import annotations

import numpy as np

from leapmpi.engine.placement import StrategyMember
from leapmpi.full_batch.full_batch_graphs import FullBatchGraphs
from leapmpi.full_batch.full_batch_placement import FullBatchPlacement


class DepComm(FullBatchPlacement):
    """All remote inputs are communicated."""

    def caches(self, layer: int, vertices: np.ndarray) -> np.ndarray:
        return np.zeros(len(vertices), bool)


MEMBER = StrategyMember(DepComm, FullBatchGraphs)
