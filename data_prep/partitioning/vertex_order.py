"""Order of vertices within the parts, by communities: rows that are read together are stored together.

Communities are clusters of the multilevel code (multilevel/clustering.py), nested: small ones, clusters of these, and
so on. They are found once in the whole graph, whatever the method that cuts it. What is learned does not depend on the
order, but for rounding: draws are keyed by original ids.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.multilevel.adjacency_stream import AnyGraph
from data_prep.partitioning.multilevel.blocks import Workers, workers
from data_prep.partitioning.multilevel.clustering import cluster
from data_prep.partitioning.multilevel.contraction import contract
from data_prep.partitioning.multilevel.undirected_stream import undirected_stream
from data_prep.partitioning.multilevel.weighted_graph import NO_WEIGHTS, VertexWeights
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.stream_budget import budget_for
from data_prep.partitioning.union_graph import union_of
from leapmpi.dataset.graph import Graph
from leapmpi.system.jit import compiled

_MOST_VERTICES = 256
"""Of a smallest community: their rows fit in a processor's cache."""

_GROWTH = 8
"""Growth of communities from one level to the next, in vertices."""

_LEAST_SHRINKING = 0.95
"""Share of communities that stay alone above which there is no further level."""


def community_order(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """Order the vertices int32[n] of `graph` community by community; those without neighbours last.

    The same graph and seed give the same order. Raises ResourceError when the memory allowed does not suffice.
    """
    budget = budget_for(graph, request, "--order communities", "leave the flag out")
    stream = undirected_stream(union_of(graph), budget.chunk, VertexWeights(NO_WEIGHTS, NO_WEIGHTS), request.progress)
    with workers(request.threads) as team:
        place, places = _places(stream, _MOST_VERTICES, request.seed, team, budget.pairs)
    vertices = np.empty(graph.vertices, np.int32)
    _sort_by_place(place, np.zeros(places + 2, np.int64), vertices)
    return vertices


def _places(graph: AnyGraph, most: int, seed: int, team: Workers, most_pairs: int) -> tuple[np.ndarray, int]:
    """Return communities int32[n] (-1 without neighbours), of at most `most` vertices, and their number.

    Communities that are near each other have near numbers.
    """
    label, count = cluster(graph, (most, 0), seed, team)
    if not 1 < count <= _LEAST_SHRINKING * graph.vertices:
        return label, count
    around, _ = _places(contract(graph, label, count, most_pairs, seed, team), most * _GROWTH, seed, team, most_pairs)

    # By the communities around them; those that no edge leads to come first.
    number = np.empty(count, np.int32)
    number[np.argsort(around, kind="stable")] = np.arange(count, dtype=np.int32)
    _rename(label, number)
    return label, count


@compiled
def _rename(label, number):
    """Rename each label to its number; -1 stays."""
    for v in range(len(label)):
        if label[v] >= 0:
            label[v] = number[label[v]]


@compiled
def _sort_by_place(place, starts, vertices):
    """Write the vertices by ascending place, -1 last; those of a place ascend. starts int64[places + 2], zeros."""
    last = len(starts) - 2
    for p in place:
        starts[(p if p >= 0 else last) + 1] += 1
    for i in range(last + 1):
        starts[i + 1] += starts[i]
    for v in range(len(place)):
        p = place[v] if place[v] >= 0 else last
        vertices[starts[p]] = v
        starts[p] += 1
