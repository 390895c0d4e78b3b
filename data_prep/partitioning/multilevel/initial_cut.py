"""The cut of the coarsest graph: METIS several times, or on tiny graphs a plain order cut evenly, the best one kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from data_prep.partitioning.metis_call import MetisArrays, run_metis
from data_prep.partitioning.multilevel.balance import Caps, excess, loads
from data_prep.partitioning.multilevel.fiduccia_mattheyses import improve
from data_prep.partitioning.multilevel.refinement import cut_weight
from data_prep.partitioning.multilevel.weighted_graph import WeightedGraph
from leapmpi.errors import DataError, ResourceError
from leapmpi.system.jit import compiled

TINY = 300
"""Vertices below which METIS is not worth its process."""

_TRIES = 4


def initial_cut(graph: WeightedGraph, caps: Caps, tolerance: float, seed: int, processes: int) -> np.ndarray:
    """Parts int32[n] of a coarse graph, made better by Fiduccia-Mattheyses; the caps may still be exceeded."""
    best, best_cost = np.empty(0, np.int32), (np.inf, 0)
    for candidate in _candidates(graph, caps, tolerance, seed, processes):
        improve(graph, candidate, caps)
        cost = (excess(*loads(candidate, graph.vertex_weights, caps.parts), caps), cut_weight(graph, candidate))
        if cost < best_cost:
            best, best_cost = candidate, cost
    return best


def _candidates(graph: WeightedGraph, caps: Caps, tolerance: float, seed: int, processes: int) -> Iterator[np.ndarray]:
    random = np.random.default_rng(seed)
    starts = random.permutation(graph.vertices)[:_TRIES]
    if graph.vertices >= max(TINY, 4 * caps.parts):
        starts = starts[:0]
        try:
            yield from _by_metis(graph, caps.parts, tolerance, seed, processes)
        except (DataError, ResourceError):
            starts = random.permutation(graph.vertices)[:_TRIES]
    for start in starts:
        yield fill_in_order(breadth_first(graph.indptr, graph.neighbours, start), graph, caps.parts)
    weights = graph.weights if len(graph.weights) else None
    heads = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    degrees = np.bincount(heads, weights, graph.vertices)
    yield fill_in_order(np.argsort(-degrees, kind="stable"), graph, caps.parts)


def _by_metis(graph: WeightedGraph, parts: int, tolerance: float, seed: int, processes: int) -> Iterator[np.ndarray]:
    weights = graph.vertex_weights

    def fill(arrays: MetisArrays) -> None:
        arrays.indptr[:] = graph.indptr
        arrays.neighbours[:] = graph.neighbours
        arrays.weights[:, 0] = weights.size if len(weights.size) else 1
        if len(weights.training):
            arrays.weights[:, 1] = weights.training
        arrays.edge_weights[:] = graph.weights

    sizes = (graph.vertices, graph.entries, 2 if len(weights.training) else 1)
    found = run_metis(
        sizes,
        fill,
        parts,
        tolerance=tolerance,
        seed=seed,
        tries=_TRIES,
        weighted=len(graph.weights) > 0,
        processes=min(processes, _TRIES),
    )
    for assignment in found.assignments:
        yield assignment.astype(np.int32)


def fill_in_order(order: np.ndarray, graph: WeightedGraph, parts: int) -> np.ndarray:
    """Parts int32[n] of equal size, each a run of `order`."""
    weights = graph.vertex_weights
    size = weights.size[order] if len(weights.size) else np.ones(len(order), np.int64)
    before = np.cumsum(size, dtype=np.int64) - size
    assignment = np.empty(len(order), np.int32)
    assignment[order] = np.minimum(parts - 1, before * parts // max(1, int(size.sum())))
    return assignment


@compiled
def breadth_first(indptr, neighbours, start):
    """All vertices in breadth-first order from `start`, then of the components that follow."""
    n = len(indptr) - 1
    order = np.empty(n, np.int64)
    seen = np.zeros(n, np.bool_)
    count = 0
    for root in range(start, start + n):
        root %= n
        if seen[root]:
            continue
        seen[root] = True
        order[count] = root
        done = count
        count += 1
        while done < count:
            v = order[done]
            done += 1
            for e in range(indptr[v], indptr[v + 1]):
                u = np.int64(neighbours[e])
                if not seen[u]:
                    seen[u] = True
                    order[count] = u
                    count += 1
    return order
