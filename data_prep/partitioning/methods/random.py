"""Balanced random parts: sizes and numbers of training vertices differ by at most one between parts."""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.method_registry import PartitionMethod
from data_prep.partitioning.postprocess import MethodResult
from data_prep.partitioning.request import PartitionRequest, training_vertices
from leapmpi.dataset.graph import Graph
from leapmpi.system.counter_rng import fold_all, mix


def partition(graph: Graph, request: PartitionRequest) -> MethodResult:
    """Return the part of each vertex. The parts take turns: for the training vertices first, in the order of a hash."""
    hashes = fold_all(np.uint64(mix(np.uint64(request.seed))), np.asarray(graph.original_id))
    assignment = np.empty(graph.vertices, np.int32)
    assignment[np.lexsort((hashes, ~training_vertices(graph)))] = np.arange(graph.vertices) % request.parts
    return MethodResult(assignment)


MEMBER = PartitionMethod(partition)
