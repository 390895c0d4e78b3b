"""Parts by a hash of the original id: what systems without a partitioner do.

A vertex's part depends on its original id alone, whatever else is in the graph; sizes are only equal on average.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.method_registry import PartitionMethod
from data_prep.partitioning.postprocess import MethodResult
from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5.row_blocks import row_ranges
from leapmpi.system.counter_rng import fold_all, mix


def partition(graph: Graph, request: PartitionRequest) -> MethodResult:
    """Return the part of each vertex; on small graphs a part may stay empty, which `partition_graph` refuses."""
    part = np.empty(graph.vertices, np.int32)
    base = np.uint64(mix(np.uint64(request.seed)))
    for start, stop in row_ranges(graph.vertices, 16):
        hashes = fold_all(base, np.asarray(graph.original_id[start:stop]))
        part[start:stop] = hashes % np.uint64(request.parts)
    return MethodResult(part)


MEMBER = PartitionMethod(partition)
