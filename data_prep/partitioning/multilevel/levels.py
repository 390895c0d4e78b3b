"""From a graph to ever smaller ones by clusters of clusters, and the parts of the smallest back up to the first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data_prep.partitioning.multilevel.adjacency_stream import AnyGraph
from data_prep.partitioning.multilevel.balance import Caps
from data_prep.partitioning.multilevel.blocks import Workers
from data_prep.partitioning.multilevel.clustering import cluster
from data_prep.partitioning.multilevel.contraction import contract
from data_prep.partitioning.multilevel.fiduccia_mattheyses import improve
from data_prep.partitioning.multilevel.initial_partition import estimated_cut, fill_by_degree, initial_partition
from data_prep.partitioning.multilevel.refinement import cost, cut_weight, refine
from data_prep.partitioning.multilevel.weighted_graph import WeightedGraph

_ENOUGH_VERTICES = 1 << 13
_FEW_VERTICES = 1 << 14
"""Graphs of so few are partitioned without clusters too: clusters would leave too few vertices to choose from."""

_PASSES_BY_DEGREE = 8
_LEAST_SHRINKING = 0.95
_FEWEST_PER_PART = 32
_MOST_ENTRIES = 1 << 22
"""Entries of a graph beyond which Fiduccia-Mattheyses takes too long."""


@dataclass(frozen=True)
class Search:
    """Settings of all levels: caps and tolerance, seed, threads, and the most edges of a contracted graph."""

    caps: Caps
    tolerance: float
    seed: int
    workers: Workers
    most_pairs: int


def cluster_and_contract(
    graph: AnyGraph, search: Search, per_part: int, number: int
) -> tuple[np.ndarray, WeightedGraph] | None:
    """Cluster by at most 1 / `per_part` of a part, int32[n], and contract; None where hardly any vertices join.

    `number` counts the levels.
    """
    size, training = graph.vertex_weights.total(graph.vertices)
    parts = search.caps.parts
    limits = (size // (per_part * parts), max(2, training // (per_part * parts)))
    seed = search.seed + 7919 * number

    # Give up where the next level would be too small, or hardly smaller than this one.
    if limits[0] < 2:
        return None
    label, clusters = cluster(graph, limits, seed, search.workers)
    if clusters < max(2, parts) or clusters > _LEAST_SHRINKING * graph.vertices:
        return None
    return label, contract(graph, label, clusters, search.most_pairs, seed, search.workers)


def partition_in_memory(graph: WeightedGraph, search: Search, number: int = 1) -> np.ndarray:
    """Partition a graph in memory through further levels: int32[n]."""
    # The next level, as long as the graph is large.
    coarser = None
    if graph.vertices > max(_ENOUGH_VERTICES, _FEWEST_PER_PART * search.caps.parts):
        coarser = cluster_and_contract(graph, search, 32, number)
    if coarser is None:
        return initial_partition(graph, search.caps, search.tolerance, search.seed + number, search.workers.count)
    label, small = coarser
    assignment = partition_in_memory(small, search, number + 1)[label]

    # Back up: refine the parts of the level below.
    polish(graph, assignment, search)
    return assignment


def partition_without_clusters_if_better(graph: AnyGraph, assignment: np.ndarray, search: Search) -> np.ndarray:
    """Return the parts int32[n], or better ones found without clusters if the graph has few vertices.

    Such a graph counts as contracted already, so memory is bounded as for contracted graphs.
    """
    if graph.vertices > _FEW_VERTICES or graph.entries > 2 * search.most_pairs:
        return assignment

    # Each vertex with neighbours is a cluster of its own.
    connected = graph.degrees() > 0
    label = np.where(connected, np.cumsum(connected) - 1, -1).astype(np.int32)
    same = contract(graph, label, int(connected.sum()), search.most_pairs, search.seed, search.workers)
    found = initial_partition(same, search.caps, search.tolerance, search.seed, search.workers.count)
    candidate = np.where(connected, found[label], -1).astype(np.int32)
    return min(assignment, candidate, key=lambda parts: cost(graph, parts, search.caps))


def fill_by_degree_if_better(graph: AnyGraph, assignment: np.ndarray, cut: int, search: Search) -> np.ndarray:
    """Return the parts int32[n], or better ones filled by degree, tried where an estimate suggests it.

    cut: the weight of the entries between parts of `assignment`.
    """
    degrees = graph.degrees()
    if estimated_cut(degrees, search.caps) * graph.entries > cut:
        return assignment
    candidate = fill_by_degree(degrees, graph.vertex_weights.training, search.caps)
    refine(graph, candidate, search.caps, _PASSES_BY_DEGREE, search.seed, search.workers)
    return candidate if cut_weight(graph, candidate) < cut_weight(graph, assignment) else assignment


def polish(graph: WeightedGraph, assignment: np.ndarray, search: Search) -> None:
    """Refine the parts int32[n] of a graph in memory, in place."""
    refine(graph, assignment, search.caps, 4, search.seed, search.workers)
    if graph.entries <= _MOST_ENTRIES:
        improve(graph, assignment, search.caps)
