"""`depcache`: full batch; each rank computes all that its training vertices depend on, and no hidden row crosses ranks.

DepCache of NeutronStar (SIGMOD 2022): the features of the whole dependency closure are fetched once and kept.
"""

from __future__ import annotations

import numpy as np

from leapmpi.engine.placement import StrategyMember
from leapmpi.full_batch.full_batch_graphs import FullBatchGraphs
from leapmpi.full_batch.full_batch_placement import FullBatchPlacement


class DepCache(FullBatchPlacement):
    """All remote inputs are cached."""

    communicates = False
    keeps_sums = True

    def caches(self, layer: int, vertices: np.ndarray) -> np.ndarray:
        return np.ones(len(vertices), bool)


MEMBER = StrategyMember(DepCache, FullBatchGraphs)
