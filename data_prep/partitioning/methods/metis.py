"""METIS: parts with few edges between them, balanced in vertices and in training vertices.

METIS (Karypis, Kumar, SIAM J. Sci. Comput. 20(1), 1998) does not check its input and may crash on odd graphs. It
gets the undirected graph, which is valid by construction, and runs in a process of its own. What it returns is
made to keep its promises (no part empty, balance), then parts are numbered so that near parts have near numbers.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.balance import training_vertices
from data_prep.partitioning.metis_call import MetisArrays, run_metis
from data_prep.partitioning.part_ordering import cut_weights, near_numbers
from data_prep.partitioning.rebalance import fill_empty, rebalance
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.undirected import Undirected
from data_prep.workspace import require
from leapmpi.dataset.graph import Graph

# Of this process and METIS's own, measured: 103 million edges among 2.45 million vertices took 7.8 GB.
_BYTES_PER_EDGE, _BYTES_PER_VERTEX = 72, 150


def partition(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """Part int32[n] of each vertex. Edge directions do not count.

    Raises DataError when METIS fails or crashes, ResourceError when memory does not suffice.
    """
    n, parts = graph.vertices, request.parts
    if parts == 1:
        return np.zeros(n, np.int32)
    _check_room(graph, request.memory)
    training = training_vertices(graph)
    undirected = Undirected(graph)

    def fill(arrays: MetisArrays) -> None:
        arrays.indptr[:] = undirected.indptr
        undirected.fill(arrays.neighbours)
        arrays.weights[:, 0] = 1
        arrays.weights[:, 1:] = training[:, None]

    sizes = (n, undirected.edges, 2 if training.any() else 1)
    found = run_metis(sizes, fill, parts, tolerance=request.tolerance, seed=request.seed)
    assignment = found.assignments[0]
    fill_empty(assignment, parts)
    rebalance(undirected.indptr, found.neighbours, assignment, training, parts, request.tolerance)
    numbers = near_numbers(cut_weights(undirected.indptr, found.neighbours, assignment, parts))
    return numbers[assignment].astype(np.int32)


def memory_needed(graph: Graph) -> int:
    """Bytes that METIS and its input take for `graph`, besides the interpreter."""
    return _BYTES_PER_EDGE * graph.edges + _BYTES_PER_VERTEX * graph.vertices


def _check_room(graph: Graph, memory: int | None) -> None:
    if memory is not None:
        require(memory, memory_needed(graph), "method metis", "use a method that streams: --method grem, ldg or hash")
