"""What partitioners do last: no part empty, no part too full, near parts with near numbers."""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.edge_chunks import edge_chunks
from data_prep.partitioning.part_ordering import add_cut_weights, near_numbers, no_cut_weights
from data_prep.partitioning.rebalance import fill_empty, rebalance
from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.graph import Graph


def finished(graph: Graph, assignment: np.ndarray, training: np.ndarray, request: PartitionRequest) -> np.ndarray:
    """The final part int32[n] of each vertex, from `assignment` (integers[n], changed) and training bool[n].

    Repairs are rare and move few vertices; they read the graph's own rows, as numbering does.
    """
    fill_empty(assignment, request.parts)
    rebalance(graph.indptr, graph.indices, assignment, training, request.parts, request.tolerance)
    weights = no_cut_weights(request.parts)
    if weights.size:
        for chunk in edge_chunks(graph, request.chunk, request.progress):
            add_cut_weights(chunk.indptr, chunk.indices, assignment[chunk.first :], assignment, weights)
        weights += weights.T.copy()
    return near_numbers(weights).astype(np.int32)[assignment]
