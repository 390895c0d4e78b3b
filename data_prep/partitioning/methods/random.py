"""Balanced random parts: sizes and numbers of training vertices differ by at most one between parts."""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.balance import training_vertices
from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.graph import Graph
from leapmpi.system.counter_rng import fold_all, mix


def partition(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """Part int32[n] of each vertex: training vertices first, then the others, dealt out in the order of a hash."""
    hashes = fold_all(np.uint64(mix(np.uint64(request.seed))), np.asarray(graph.original_id))
    assignment = np.empty(graph.vertices, np.int32)
    assignment[np.lexsort((hashes, ~training_vertices(graph)))] = np.arange(graph.vertices) % request.parts
    return assignment
