"""Partitions to begin with: of the coarsest graph, and by descending degree.

The coarsest graph is partitioned by METIS several times, or, where it is tiny, by plain orders divided evenly; the best
is kept. Parts filled by descending degree suit graphs whose few hubs hold nearly all edges, as R-MAT graphs do: the
vertices of high degree fit into the first parts, with most edges, and no clustering cuts as few edges. On other graphs
such parts are bad, which an estimate from the degrees alone shows beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from data_prep.partitioning.multilevel.balance import Caps
from data_prep.partitioning.multilevel.fiduccia_mattheyses import improve
from data_prep.partitioning.multilevel.metis_call import run_metis
from data_prep.partitioning.multilevel.metis_process import MetisArrays
from data_prep.partitioning.multilevel.refinement import cost
from data_prep.partitioning.multilevel.weighted_graph import WeightedGraph
from leapmpi.errors import DataError, ResourceError
from leapmpi.sampling.clusters import breadth_first
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import in_order

TINY = 300
"""Vertices below which METIS is not worth its process."""

_TRIES = 4
_FEW_LINKS = 1 << 20
"""Pairs of a vertex and a part; Fiduccia-Mattheyses holds four bytes of each."""

_BLOCK = 1 << 20
"""Vertices whose degrees are counted at a time."""


def initial_partition(graph: WeightedGraph, caps: Caps, tolerance: float, seed: int, processes: int) -> np.ndarray:
    """Partition a coarse graph, improved by Fiduccia-Mattheyses: int32[n]; parts may still exceed the caps."""

    def improved(candidate: np.ndarray) -> tuple[np.ndarray, tuple[float, int]]:
        improve(graph, candidate, caps)
        return candidate, cost(graph, candidate, caps)

    # Threads improve several at a time where their tables are small. Of equal ones the first counts.
    threads = processes if graph.vertices * caps.parts <= _FEW_LINKS else 1
    found = in_order(improved, _candidates(graph, caps, tolerance, seed, processes), threads)
    return min(found, key=lambda each: each[1])[0]


def _candidates(graph: WeightedGraph, caps: Caps, tolerance: float, seed: int, processes: int) -> Iterator[np.ndarray]:
    """Yield parts int32[n] to choose from. METIS runs where the graph is worth a process and METIS does not fail."""
    random = np.random.default_rng(seed)
    starts = random.permutation(graph.vertices)[:_TRIES]
    if graph.vertices >= max(TINY, 4 * caps.parts):
        starts = starts[:0]
        try:
            yield from _by_metis(graph, caps.parts, tolerance, seed, processes)
        except (DataError, ResourceError):
            starts = random.permutation(graph.vertices)[:_TRIES]

    # Breadth-first orders, and the order by descending weighted degree.
    for start in starts:
        order = breadth_first(np.roll(np.arange(graph.vertices), -start), graph.indptr, graph.neighbours)
        yield fill_in_order(order, graph, caps.parts)
    weights = graph.weights if len(graph.weights) else None
    heads = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    degrees = np.bincount(heads, weights, graph.vertices)
    yield fill_in_order(np.argsort(-degrees, kind="stable"), graph, caps.parts)


def _by_metis(graph: WeightedGraph, parts: int, tolerance: float, seed: int, processes: int) -> Iterator[np.ndarray]:
    """Yield parts int32[n] by each of METIS's tries. Raises DataError or ResourceError when METIS fails."""
    weights = graph.vertex_weights

    def fill(arrays: MetisArrays) -> None:
        arrays.indptr[:] = graph.indptr
        arrays.neighbours[:] = graph.neighbours
        arrays.weights[:, 0] = weights.size if len(weights.size) else 1
        if len(weights.training):
            arrays.weights[:, 1] = weights.training
        arrays.edge_weights[:] = graph.weights

    # One balance constraint for vertices, a second one for training vertices.
    sizes = (graph.vertices, graph.entries, 2 if len(weights.training) else 1)
    tries = {"tries": _TRIES, "processes": min(processes, _TRIES)}
    weighted = len(graph.weights) > 0
    found = run_metis(sizes, fill, parts, tolerance=tolerance, seed=seed, weighted=weighted, **tries)
    for assignment in found.assignments:
        yield assignment.astype(np.int32)


def fill_in_order(order: np.ndarray, graph: WeightedGraph, parts: int) -> np.ndarray:
    """Cut `order` into runs of equal size: parts int32[n]."""
    weights = graph.vertex_weights
    size = weights.size[order] if len(weights.size) else np.ones(len(order), np.int64)
    before = np.cumsum(size, dtype=np.int64) - size
    assignment = np.empty(len(order), np.int32)
    assignment[order] = np.minimum(parts - 1, before * parts // max(1, int(size.sum())))
    return assignment


def estimated_cut(degrees: np.ndarray, caps: Caps) -> float:
    """Estimate the share of edges cut by parts filled by degree, if edges join vertices by degree alone."""
    # Vertices, and ends of edges, from the highest degree on.
    with_degree = _vertices_by_degree(degrees)[::-1]
    ends = np.arange(len(with_degree))[::-1] * with_degree
    count, held = (np.concatenate([[0], np.cumsum(each)]) for each in (with_degree, ends))

    # The share of the ends in each part; an edge joins two parts with the product of their shares.
    bounds = np.minimum(caps.size * np.arange(caps.parts + 1), len(degrees))
    shares = np.diff(np.interp(bounds, count, held)) / max(1, held[-1])
    return 1.0 - float((shares**2).sum())


def fill_by_degree(degrees: np.ndarray, training: np.ndarray, caps: Caps) -> np.ndarray:
    """Fill parts int32[n] with vertices of degrees int32[n] (0: in none, -1).

    training: int32[n], or int32[0] where there are no training vertices.
    """
    with_degree = _vertices_by_degree(degrees)
    place = np.cumsum(with_degree[::-1])[::-1] - with_degree
    order = np.empty(len(degrees), np.int32)
    _order(degrees, place, order)
    assignment = np.full(len(degrees), -1, np.int32)
    _fill(order[: len(degrees) - int(with_degree[0])], training, np.array([caps.size, caps.training]), caps.parts,
          assignment)  # fmt: skip
    return assignment


def _vertices_by_degree(degrees: np.ndarray) -> np.ndarray:
    """Count the vertices of each degree: int64[largest degree + 1]."""
    counts = np.zeros(int(degrees.max(initial=0)) + 1, np.int64)
    for first in range(0, len(degrees), _BLOCK):
        counts += np.bincount(degrees[first : first + _BLOCK], minlength=len(counts))
    return counts


@compiled
def _order(degrees, place, order):
    """Write the vertices by descending degree; place[d] is where those of degree d begin."""
    for v in range(len(degrees)):
        order[place[degrees[v]]] = v
        place[degrees[v]] += 1


@compiled
def _fill(order, training, caps, parts, assignment):
    """Fill one part after the other up to its caps; the last part takes what is left."""
    sizes, trainings = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    first = 0  # of the parts that are not full
    for v in order:
        trains = training[v] if len(training) else 0
        while first < parts - 1 and sizes[first] >= caps[0]:
            first += 1
        p = first
        while p < parts - 1 and (sizes[p] >= caps[0] or trainings[p] + trains > caps[1]):
            p += 1
        assignment[v] = p
        sizes[p] += 1
        trainings[p] += trains
