"""GREM: parts with as few edges between them as METIS finds, in a fraction of its time and memory.

The idea is that of Armada (Waleffe et al., arXiv:2502.17846): partition a stream of edges greedily, and keep refining
what was assigned before. Here a graph that is too large for memory is clustered and contracted while it streams by in
chunks, the contracted graph is cut in memory, and the cut is refined while the graph streams by again.

Edge directions do not count. The same seed gives the same parts, whatever the number of threads.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.balance import training_vertices
from data_prep.partitioning.multilevel.adjacency_stream import AdjacencyStream
from data_prep.partitioning.multilevel.balance import caps_for, loads
from data_prep.partitioning.multilevel.band import improve_band
from data_prep.partitioning.multilevel.blocks import workers
from data_prep.partitioning.multilevel.budget import MOST_HELD, budget_for
from data_prep.partitioning.multilevel.draining import drain, place_isolated
from data_prep.partitioning.multilevel.levels import (
    Search,
    cluster_and_contract,
    cut_in_memory,
    cut_without_clusters_if_better,
    fill_by_degree_if_better,
    polish,
)
from data_prep.partitioning.multilevel.part_links import number_near
from data_prep.partitioning.multilevel.refinement import cut_weight, refine
from data_prep.partitioning.multilevel.undirected_stream import undirected_stream
from data_prep.partitioning.multilevel.weighted_graph import VertexWeights, WeightedGraph
from data_prep.partitioning.rebalance import fill_empty
from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.graph import Graph

_PASSES = 4
HELD = MOST_HELD
"""Graphs with more entries stay on disk, whatever the memory."""


def partition(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """Part int32[n] of each vertex.

    Raises ResourceError when the memory allowed does not suffice, DataError when the file becomes shorter meanwhile.
    """
    n, parts = graph.vertices, request.parts
    if parts in (1, n):
        return np.arange(n, dtype=np.int32) % np.int32(parts)
    training = training_vertices(graph).astype(np.int32)
    if not training.any():
        training = training[:0]
    budget = budget_for(n, graph.edges, graph.indices.itemsize, request)
    weights = VertexWeights(np.empty(0, np.int32), training)
    stream = undirected_stream(graph, budget.chunk, weights, request.progress)
    caps = caps_for(n, int(training.sum()), parts, request.tolerance)
    with workers(request.threads) as team:
        search = Search(caps, request.tolerance, request.seed, team, budget.pairs)
        assignment = (
            _cut_held(stream, search)
            if stream.entries <= min(budget.held, HELD)
            else _cut_stream(stream, search, budget.held)
        )
    place_isolated(assignment, training, caps)
    fill_empty(assignment, parts)
    drain(stream, assignment, caps)
    sizes, trainings = loads(assignment, stream.vertex_weights, parts)
    assert sizes.max() <= caps.size, (sizes, caps)
    assert trainings.max() <= caps.training, (trainings, caps)
    return number_near(stream, assignment, parts)


def _cut_stream(stream: AdjacencyStream, search: Search, held: int) -> np.ndarray:
    """Parts int32[n], -1 without neighbours, of a graph whose edges stay on disk."""
    coarser = cluster_and_contract(stream, search, 128, 0)
    if coarser is None:
        assignment = np.arange(stream.vertices) * search.caps.parts // stream.vertices
        assignment = assignment.astype(np.int32)
    else:
        label, small = coarser
        coarse = cut_in_memory(small, search)
        assignment = np.where(label >= 0, coarse[label], -1).astype(np.int32)
    boundary, cut = refine(stream, assignment, search.caps, _PASSES, search.seed, search.workers)
    # A band as large as a contracted graph may be takes no more memory than that; a larger one, too much time.
    most = min(max(stream.entries // 4, 2 * search.most_pairs), held)
    if boundary <= most:
        improve_band(stream, assignment, search.caps, most)
    assignment = cut_without_clusters_if_better(stream, assignment, search)
    return fill_by_degree_if_better(stream, assignment, cut, search)


def _cut_held(stream: AdjacencyStream, search: Search) -> np.ndarray:
    """Parts int32[n], -1 without neighbours, of a graph that is no larger than a contracted one may be."""
    graph, has_neighbours = _connected(stream)
    assignment = np.full(stream.vertices, -1, np.int32)
    coarser = cluster_and_contract(graph, search, 128, 0)
    if coarser is None:
        found = cut_in_memory(graph, search)
    else:
        label, small = coarser
        found = cut_in_memory(small, search)[label]
        polish(graph, found, search)
    found = cut_without_clusters_if_better(graph, found, search)
    found = fill_by_degree_if_better(graph, found, cut_weight(graph, found), search)
    assignment[has_neighbours] = found
    return assignment


def _connected(stream: AdjacencyStream) -> tuple[WeightedGraph, np.ndarray]:
    """The whole graph without its isolated vertices, in memory, and the ids of those in it."""
    chunks = [(np.diff(c.indptr), c.neighbours.copy()) for c in stream.chunks()]
    degrees = np.concatenate([d for d, _ in chunks])
    ids = np.flatnonzero(degrees)
    number = (np.cumsum(degrees > 0, dtype=np.int64) - 1).astype(np.uint32)
    neighbours = number[np.concatenate([u for _, u in chunks])]
    indptr = np.concatenate([[0], np.cumsum(degrees[ids])]).astype(np.int64)
    training = stream.vertex_weights.training
    weights = VertexWeights(np.empty(0, np.int32), training[ids] if len(training) else training)
    return WeightedGraph(indptr, neighbours, np.empty(0, np.int32), weights), ids
