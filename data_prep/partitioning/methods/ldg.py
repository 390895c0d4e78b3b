"""LDG, linear deterministic greedy: one pass, each vertex to its neighbours, less so the fuller their part is.

Stanton, Kliot, "Streaming graph partitioning for large distributed graphs" (KDD 2012): the part with the largest
number of neighbours x (1 - size / largest size). Training vertices also count the free share of theirs.
"""

from __future__ import annotations

from data_prep.partitioning.method_registry import PartitionMethod
from data_prep.partitioning.postprocess import MethodResult
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.streaming import Stream
from leapmpi.dataset.graph import Graph


def partition(graph: Graph, request: PartitionRequest) -> MethodResult:
    """Return the part of each vertex, by the in-neighbours placed before it."""
    stream = Stream(graph, request)
    stream.sweep()
    return stream.result()


MEMBER = PartitionMethod(partition, weights=True)
