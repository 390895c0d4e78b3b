"""Contiguous parts: equal ranges of vertices in the order of their original ids.

Good where the source's order has meaning (crawl order, time, space), and the plainest baseline.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.method_registry import PartitionMethod
from data_prep.partitioning.postprocess import MethodResult
from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.graph import Graph


def partition(graph: Graph, request: PartitionRequest) -> MethodResult:
    """Return the part of each vertex; sizes differ by at most one."""
    part = np.arange(graph.vertices, dtype=np.int64) * request.parts // graph.vertices
    return MethodResult(part.astype(np.int32))


MEMBER = PartitionMethod(partition)
