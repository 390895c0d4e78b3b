"""METIS: parts with few edges between them, balanced in vertices and in training vertices.

METIS (Karypis, Kumar, SIAM J. Sci. Comput. 20(1), 1998) does not check its input and may crash on odd graphs. It
gets the undirected graph, which is valid by construction, and runs in a process of its own. It may leave a part empty
or too full, which post-processing repairs.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.method_registry import PartitionMethod
from data_prep.partitioning.multilevel.metis_call import run_metis
from data_prep.partitioning.multilevel.metis_process import MetisArrays
from data_prep.partitioning.postprocess import MethodResult, rows_in_memory
from data_prep.partitioning.request import PartitionRequest, balanced_vertices
from data_prep.partitioning.undirected import Undirected
from data_prep.workspace import require
from leapmpi.dataset.graph import Graph

_SECOND_SEED = 2**31 - 2
"""Stands for seed 1."""

_LEAST_OF_A_TYPE = 100
"""Vertices per part from which on METIS balances a type; smaller ones are evened out afterwards."""

_MOST_CONSTRAINTS = 8
"""METIS finds bad cuts for many more."""

# Of this process and METIS's own, measured: 103 million edges among 2.45 million vertices took 7.8 GB.
_BYTES_PER_EDGE = 72
_BYTES_PER_VERTEX = 150


def partition(graph: Graph, request: PartitionRequest) -> MethodResult:
    """Return the part of each vertex. Edge directions do not count.

    Raises DataError when METIS fails or crashes, ResourceError when memory does not suffice.
    """
    if request.parts == 1:
        return MethodResult(np.zeros(graph.vertices, np.int32))
    if request.memory is not None:
        advice = "use a method that streams: --method grem, ldg or hash"
        require(request.memory, memory_needed(graph), "method metis", advice)
    training = balanced_vertices(graph, request)
    undirected = Undirected(graph)

    def fill(arrays: MetisArrays) -> None:
        arrays.indptr[:] = undirected.indptr
        undirected.fill(arrays.neighbours)
        arrays.weights[:, 0] = 1
        for column, weights in enumerate(constraints, 1):
            arrays.weights[:, column] = weights

    # One balance constraint for vertices, a second one for training vertices, one for each type that is large enough.
    constraints = [training] if training.any() else []
    if request.groups is not None:
        counts = np.bincount(request.groups)
        large = np.flatnonzero(counts >= _LEAST_OF_A_TYPE * request.parts)
        constraints += [request.groups == group for group in large[: _MOST_CONSTRAINTS - 2].tolist()]
    sizes = (graph.vertices, undirected.edges, 1 + len(constraints))
    # METIS draws by the C library's rand, to which seeds 0 and 1 are one.
    seed = _SECOND_SEED if request.seed == 1 else request.seed
    found = run_metis(sizes, fill, request.parts, tolerance=request.tolerance, seed=seed)
    return MethodResult(found.assignments[0], rows_in_memory(undirected.indptr, found.neighbours))


def memory_needed(graph: Graph) -> int:
    """Return the bytes that METIS and its input take for `graph`, besides the interpreter."""
    return _BYTES_PER_EDGE * graph.edges + _BYTES_PER_VERTEX * graph.vertices


MEMBER = PartitionMethod(partition, weights=True)
