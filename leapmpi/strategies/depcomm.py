"""`depcomm`: full batch; each rank computes every layer for its own vertices, and hidden rows cross ranks.

DepComm of NeutronStar (SIGMOD 2022): nothing is computed twice, and every layer sends the rows that other ranks read.
"""

from __future__ import annotations

from leapmpi.full_batch.full_batch_graphs import FullBatchGraphs
from leapmpi.full_batch.full_batch_placement import FullBatchRules, by_layer_strategy

MEMBER = by_layer_strategy(FullBatchRules(), FullBatchGraphs)
"""All remote inputs are communicated."""
