"""Parts filled by descending degree: for graphs whose few hubs hold nearly all edges, as R-MAT graphs do.

There the vertices of high degree fit into the first parts, with most edges: no clustering finds as small a cut.
Elsewhere such a cut is bad, which an estimate from the degrees alone tells beforehand.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.multilevel.balance import Caps
from leapmpi.system.jit import compiled

_BLOCK = 1 << 20


def estimated_cut(degrees: np.ndarray, caps: Caps) -> float:
    """The share of edges that such a cut leaves between parts where edges join vertices at random by their degrees."""
    with_degree = _vertices_by_degree(degrees)[::-1]
    ends = np.arange(len(with_degree))[::-1] * with_degree
    count, held = (np.concatenate([[0], np.cumsum(each)]) for each in (with_degree, ends))
    bounds = np.minimum(caps.size * np.arange(caps.parts + 1), len(degrees))
    shares = np.diff(np.interp(bounds, count, held)) / max(1, held[-1])
    return 1.0 - float((shares**2).sum())


def fill_by_degree(degrees: np.ndarray, training: np.ndarray, caps: Caps) -> np.ndarray:
    """Parts int32[n] of vertices with degrees int32[n] (0: in none, -1).

    training: int32[n], or int32[0] where nothing trains.
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
    counts = np.zeros(int(degrees.max(initial=0)) + 1, np.int64)
    for first in range(0, len(degrees), _BLOCK):
        counts += np.bincount(degrees[first : first + _BLOCK], minlength=len(counts))
    return counts


@compiled
def _order(degrees, place, order):
    """Vertices by descending degree; place[d] is where those of degree d begin."""
    for v in range(len(degrees)):
        order[place[degrees[v]]] = v
        place[degrees[v]] += 1


@compiled
def _fill(order, training, caps, parts, assignment):
    """Fill one part after the other up to its caps."""
    sizes, trainings = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    first = 0
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
