"""ReLDG: LDG restreamed. Every further pass places all vertices again, knowing where the last one put the others.

Nishimura, Ugander, "Restreaming graph partitioning: simple versatile algorithms for advanced balancing" (KDD 2013).
"""

from __future__ import annotations

from data_prep.partitioning.method_registry import PartitionMethod
from data_prep.partitioning.postprocess import MethodResult
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.streaming import Stream
from leapmpi.dataset.graph import Graph

_PASSES = 10
_ENOUGH_CHANGES = 0.001
"""Share of the vertices: no further pass once fewer change their part."""


def partition(graph: Graph, request: PartitionRequest) -> MethodResult:
    """Return the part of each vertex, by its in-neighbours. At most ten passes over the edges."""
    stream = Stream(graph, request)
    for _ in range(_PASSES):
        if stream.sweep() < _ENOUGH_CHANGES * graph.vertices:
            break
        stream.restart()
    return stream.result()


MEMBER = PartitionMethod(partition, weights=True)
