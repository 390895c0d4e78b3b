"""GREM: parts with as few edges between them as METIS finds, in a fraction of its time and memory.

The idea is that of Armada (Waleffe et al., arXiv:2502.17846): partition a stream of edges greedily, and keep refining
what was assigned before. Here a graph that is too large for memory is clustered and contracted while it streams by in
chunks. The contracted graph is partitioned in memory, and the parts are refined while the graph streams by again.

Edge directions do not count. The same seed gives the same parts, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from data_prep.partitioning.method_registry import PartitionMethod
from data_prep.partitioning.multilevel import levels
from data_prep.partitioning.multilevel.adjacency_stream import AdjacencyStream
from data_prep.partitioning.multilevel.balance import loads
from data_prep.partitioning.multilevel.band import improve_band
from data_prep.partitioning.multilevel.blocks import workers
from data_prep.partitioning.multilevel.draining import drain, place_isolated
from data_prep.partitioning.multilevel.refinement import cut_weight, refine
from data_prep.partitioning.multilevel.undirected_stream import undirected_stream
from data_prep.partitioning.multilevel.weighted_graph import Chunk, VertexWeights, WeightedGraph
from data_prep.partitioning.postprocess import Adjacency, MethodResult, fill_empty
from data_prep.partitioning.request import PartitionRequest, balanced_vertices, part_capacity
from data_prep.partitioning.stream_budget import HELD, budget_for
from leapmpi.dataset.graph import Graph

_PASSES = 4
_CLUSTERS_PER_PART = 128

_SAMPLED_ENTRIES = 1 << 23
_SAMPLED_ROWS = 256
"""Parts are numbered by about so many entries of the graph, taken from runs of so many rows."""


def partition(graph: Graph, request: PartitionRequest) -> MethodResult:
    """Return the part of each vertex. No part is empty; capacities hold, and other weights than 1 but for repairs.

    Raises ResourceError when the memory allowed does not suffice, DataError when the file becomes shorter meanwhile.
    """
    n, parts = graph.vertices, request.parts
    if parts in (1, n):
        return MethodResult(np.arange(n, dtype=np.int32) % np.int32(parts))

    # The undirected graph as a stream, within the memory allowed.
    training = balanced_vertices(graph, request).astype(np.int32, copy=False)
    caps = part_capacity(training, request)
    if not training.any():
        training = training[:0]
    budget = budget_for(graph, request, "method grem", "use method hash or contiguous")
    weights = VertexWeights(np.empty(0, np.int32), training)
    stream = undirected_stream(graph, budget.chunk, weights, request.progress)

    # Partition the vertices that have neighbours: in memory where the graph is small, else from the stream.
    with workers(request.threads) as team:
        search = levels.Search(caps, request.tolerance, request.seed, team, budget.pairs)
        if stream.entries <= min(budget.held, HELD):
            assignment = _partition_held(stream, search)
        else:
            assignment = _partition_stream(stream, search, budget.held)

    # Place the others, and move vertices until all capacities hold.
    place_isolated(assignment, training, caps)
    fill_empty(assignment, parts)
    if request.weights is None:
        drain(stream, assignment, caps)
        sizes, trainings = loads(assignment, stream.vertex_weights, parts)
        assert sizes.max() <= caps.size, (sizes, caps)
        assert trainings.max() <= caps.training, (trainings, caps)
    return MethodResult(assignment, Adjacency(stream.indptr, stream.neighbours, _sampled_rows(stream)))


def _sampled_rows(stream: AdjacencyStream) -> Iterator[Chunk]:
    """Choose runs of rows with about _SAMPLED_ENTRIES entries, evenly over the graph; all of a small graph."""
    step = 1 + stream.entries // _SAMPLED_ENTRIES
    for chunk in stream.chunks():
        for begin in range(0, chunk.vertices, _SAMPLED_ROWS * step):
            end = min(begin + _SAMPLED_ROWS, chunk.vertices)
            yield chunk._replace(first=chunk.first + begin, indptr=chunk.indptr[begin : end + 1])


def _partition_stream(stream: AdjacencyStream, search: levels.Search, held: int) -> np.ndarray:
    """Return parts int32[n], -1 without neighbours, of a graph whose edges stay on disk."""
    # Cluster and contract while the graph streams by; without clusters, begin with runs of the given order.
    coarser = levels.cluster_and_contract(stream, search, _CLUSTERS_PER_PART, 0)
    if coarser is None:
        runs = np.arange(stream.vertices) * search.caps.parts // stream.vertices
        assignment = runs.astype(np.int32)
    else:
        label, small = coarser
        coarse = levels.partition_in_memory(small, search)
        assignment = np.where(label >= 0, coarse[label], -1).astype(np.int32)

    # A band as large as a contracted graph may be takes no more memory than that; a larger one, too much time.
    boundary, cut = refine(stream, assignment, search.caps, _PASSES, search.seed, search.workers)
    most = min(max(stream.entries // 4, 2 * search.most_pairs), held)
    if boundary <= most:
        improve_band(stream, assignment, search.caps, most)

    # Other ways, for graphs without communities and for hubs.
    assignment = levels.partition_without_clusters_if_better(stream, assignment, search)
    return levels.fill_by_degree_if_better(stream, assignment, cut, search)


def _partition_held(stream: AdjacencyStream, search: levels.Search) -> np.ndarray:
    """Return parts int32[n], -1 without neighbours, of a graph no larger than a contracted one may be."""
    graph, has_neighbours = _connected(stream)
    coarser = levels.cluster_and_contract(graph, search, _CLUSTERS_PER_PART, 0)
    if coarser is None:
        found = levels.partition_in_memory(graph, search)
    else:
        label, small = coarser
        found = levels.partition_in_memory(small, search)[label]
        levels.polish(graph, found, search)

    # Other ways, for graphs without communities and for hubs.
    found = levels.partition_without_clusters_if_better(graph, found, search)
    found = levels.fill_by_degree_if_better(graph, found, cut_weight(graph, found), search)
    assignment = np.full(stream.vertices, -1, np.int32)
    assignment[has_neighbours] = found
    return assignment


def _connected(stream: AdjacencyStream) -> tuple[WeightedGraph, np.ndarray]:
    """Load the graph without its isolated vertices; also return the ids int64 of the vertices that it has."""
    chunks = [(np.diff(chunk.indptr), chunk.neighbours.copy()) for chunk in stream.chunks()]
    degrees = np.concatenate([degrees_of_chunk for degrees_of_chunk, _ in chunks])
    ids = np.flatnonzero(degrees)

    # Number the vertices without gaps.
    number = (np.cumsum(degrees > 0, dtype=np.int64) - 1).astype(np.uint32)
    neighbours = number[np.concatenate([neighbours_of_chunk for _, neighbours_of_chunk in chunks])]
    indptr = np.concatenate([[0], np.cumsum(degrees[ids])]).astype(np.int64)
    training = stream.vertex_weights.training
    weights = VertexWeights(np.empty(0, np.int32), training[ids] if len(training) else training)
    return WeightedGraph(indptr, neighbours, np.empty(0, np.int32), weights), ids


MEMBER = PartitionMethod(partition, weights=True)
