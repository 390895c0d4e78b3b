"""Repairs of the parts that a method returns: no part is empty, none too full, near parts get near numbers.

Repairs are rare and move few vertices, so that few more edges are cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from data_prep.partitioning.multilevel.adjacency_stream import edge_chunks
from data_prep.partitioning.multilevel.balance import Caps
from data_prep.partitioning.multilevel.weighted_graph import NO_WEIGHTS, Chunk
from data_prep.partitioning.part_ordering import add_cut_weights, near_numbers, no_cut_weights
from data_prep.partitioning.request import PartitionRequest, largest_part, part_capacity, training_vertices
from data_prep.partitioning.vertex_weights import move_out
from leapmpi.dataset.graph import Graph
from leapmpi.system.jit import compiled

_PASSES = 8


class Adjacency(NamedTuple):
    """The edges by which parts are repaired and numbered: those of the graph, or of the undirected graph under it.

    The neighbours of vertex v are neighbours[indptr[v]:indptr[v + 1]]. `chunks` are the same rows in consecutive
    chunks, or a sample of them; they are read once, and only where parts are numbered.
    """

    indptr: np.ndarray
    neighbours: np.ndarray
    chunks: Iterable[Chunk]


class MethodResult(NamedTuple):
    """Result of a method: the part of each vertex, integers[n], and the edges by which parts are repaired.

    Without an adjacency the parts stay as they are. Else `assignment` is changed.
    """

    assignment: np.ndarray
    adjacency: Adjacency | None = None


def rows_of_graph(graph: Graph, request: PartitionRequest) -> Adjacency:
    """Return the in-edges of `graph` itself, which may be a mapped file."""
    return Adjacency(graph.indptr, graph.indices, edge_chunks(graph, request.chunk, request.progress))


def rows_in_memory(indptr: np.ndarray, neighbours: np.ndarray) -> Adjacency:
    """Return an undirected graph in memory, every edge in the rows of both ends."""
    return Adjacency(indptr, neighbours, [Chunk(0, indptr, neighbours, NO_WEIGHTS)])


def postprocess(graph: Graph, result: MethodResult, request: PartitionRequest) -> np.ndarray:
    """Return the final part int32[n] of each vertex of `graph`, from the result of a method."""
    assignment, adjacency = result
    if adjacency is None:
        return assignment

    # Repair what the method has left: empty parts, and parts beyond the tolerance.
    fill_empty(assignment, request.parts)
    repair(graph, adjacency.indptr, adjacency.neighbours, assignment, request)

    # Number the parts by the edges between them. Two parts or fewer have no order.
    weights = no_cut_weights(request.parts)
    if request.parts <= 2 or not weights.size:
        return assignment.astype(np.int32)
    for chunk in adjacency.chunks:
        add_cut_weights(chunk, assignment, weights)
    return near_numbers(weights + weights.T).astype(np.int32)[assignment]


def fill_empty(assignment: np.ndarray, parts: int) -> None:
    """Give each empty part of `assignment` (int64[n], in place) one vertex of the largest parts. Needs n >= parts."""
    sizes = np.bincount(assignment, minlength=parts)
    empty = np.flatnonzero(sizes == 0)
    if not len(empty):
        return

    # Vertices of highest rank within their part come off the tops of the largest parts; rank 0 always stays.
    order = np.argsort(assignment, kind="stable")
    rank = np.empty(len(assignment), np.int64)
    rank[order] = np.arange(len(assignment)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    assignment[np.argsort(-rank, kind="stable")[: len(empty)]] = empty


def repair(
    graph: Graph, indptr: np.ndarray, neighbours: np.ndarray, assignment: np.ndarray, request: PartitionRequest
) -> None:
    """Move vertices of `graph` until the parts are as balanced as `request` wants, by the edges given."""
    if request.weights is None:
        training = training_vertices(graph)
        rebalance(indptr, neighbours, assignment, training, request.parts, request.tolerance, request.groups)
    else:
        even_out(indptr, neighbours, assignment, request.weights, part_capacity(request.weights, request))


def even_out(
    indptr: np.ndarray, neighbours: np.ndarray, assignment: np.ndarray, weights: np.ndarray, caps: Caps
) -> None:
    """Move vertices of a graph until no part exceeds `caps`; `assignment` int[n] changes in place.

    weights: int32[n], what parts are balanced by besides vertices. Vertices move first that add fewest edges to the cut
    for their weight. Numbers of vertices hold in the end; weights do where vertices are light enough to share out.
    """
    sizes, loads = np.zeros((2, caps.parts), np.int64)
    for attempt in range(2 * _PASSES):
        sizes[:] = np.bincount(assignment, minlength=caps.parts)
        loads[:] = np.bincount(assignment, weights, caps.parts)
        by_size = attempt % 2 == 1
        if max(sizes.max() - caps.size, loads.max() - caps.training) <= 0:
            break
        too_full = sizes > caps.size if by_size else loads > caps.training
        # Light vertices that come back would go to and fro.
        least = 0.0 if by_size else max(1.0, weights.mean() if attempt else 0.0)
        candidates = np.flatnonzero(too_full[assignment] & (weights >= least))
        has_capacity = sizes < caps.size if by_size else loads < caps.training
        target, gain = _best_targets(indptr, neighbours, assignment, candidates, has_capacity)

        # By the edges that a move adds for each unit that it relieves the part of; sizes by light vertices first.
        weight = weights[candidates]
        loss = np.where(gain > 0, -gain * weight, -gain / np.maximum(1, weight))
        order = np.lexsort((-gain, weight)) if by_size else np.argsort(loss, kind="stable")
        # In turn, heavy vertices move whatever the sizes, and light ones even these out whatever they weigh.
        limits = np.array([caps.size if by_size else len(assignment), caps.training])
        move_out(order, candidates, target, weights, assignment, sizes, loads, limits, by_size)


def rebalance(
    indptr: np.ndarray,
    neighbours: np.ndarray,
    assignment: np.ndarray,
    training: np.ndarray,
    parts: int,
    tolerance: float,
    groups: np.ndarray | None = None,
) -> None:
    """Move vertices of a graph until no part exceeds `tolerance` times the mean; `assignment` changes in place.

    First training vertices (bool[n]) move, then others even out the sizes: of each of the `groups` (integers[n]) by
    itself, where these are given. Vertices move first that have many more
    neighbours in another part with free capacity than in their present part. Means that are not whole are rounded up.
    """
    # Training vertices first, because others can still even out sizes afterwards without moving them.
    masks = [np.ones_like(training)] if groups is None else [groups == group for group in np.unique(groups)]
    for movable, counted in ((training, training), *((mask & ~training, mask) for mask in masks)):
        limit = largest_part(int(counted.sum()), parts, tolerance)
        for _ in range(_PASSES):
            counts = np.bincount(assignment[counted], minlength=parts)
            if counts.max() <= limit:
                break
            candidates = np.flatnonzero(movable & (counts > limit)[assignment])
            target, gain = _best_targets(indptr, neighbours, assignment, candidates, counts < limit)

            # Those that gain most move first, until their parts are at the limit.
            for i in np.argsort(-gain, kind="stable"):
                v = candidates[i]
                source = assignment[v]
                if counts[source] > limit:
                    to = target[i] if target[i] >= 0 and counts[target[i]] < limit else int(np.argmin(counts))
                    assignment[v] = to
                    counts[source] -= 1
                    counts[to] += 1


@compiled
def _best_targets(indptr, neighbours, assignment, candidates, has_capacity):
    """Find for each candidate the part (has_capacity bool[P]) with most neighbours (-1: none), and the gain."""
    target = np.full(len(candidates), -1, np.int64)
    gain = np.zeros(len(candidates), np.int64)
    links = np.zeros(len(has_capacity), np.int64)
    for i in range(len(candidates)):
        v = candidates[i]
        for e in range(indptr[v], indptr[v + 1]):
            links[assignment[neighbours[e]]] += 1

        # Equal numbers of neighbours: the smaller part number, whatever the order of the neighbours.
        most = 0
        for e in range(indptr[v], indptr[v + 1]):
            part = assignment[neighbours[e]]
            if has_capacity[part] and (links[part] > most or (links[part] == most and part < target[i])):
                most = links[part]
                target[i] = part
        gain[i] = most - links[assignment[v]]

        # Only the touched entries are reset: P may be far larger than the degree.
        for e in range(indptr[v], indptr[v + 1]):
            links[assignment[neighbours[e]]] = 0
    return target, gain
