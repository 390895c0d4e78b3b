"""`depcache`: full batch; each rank computes all that its training vertices depend on, and no hidden row crosses ranks.

DepCache of NeutronStar (SIGMOD 2022): the features of the whole dependency closure are fetched once and kept.
"""

from __future__ import annotations

from leapmpi.full_batch.full_batch_graphs import FullBatchGraphs
from leapmpi.full_batch.full_batch_placement import FullBatchRules, by_layer_strategy

MEMBER = by_layer_strategy(FullBatchRules(caches=True, communicates=False, keeps_sums=True), FullBatchGraphs)
"""All remote inputs are cached."""
