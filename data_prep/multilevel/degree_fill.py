"""Parts filled by descending degree: for graphs whose few hubs hold nearly all edges, as R-MAT graphs do.

There the vertices of high degree fit into the first parts, with most edges: no clustering finds as small a cut.
Elsewhere such a cut is bad, which an estimate from the degrees alone tells beforehand.
"""

from __future__ import annotations

import numpy as np

from data_prep.multilevel.balance import Caps
from leapmpi.compiled import compiled


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


def fill_by_degree(degrees: np.ndarray, training: np.ndarray, caps: Caps) -> tuple[np.ndarray, float]:
    """Parts int32[n] of vertices with degrees int32[n] (0: in none, -1), and the share of edges that they would cut if
    edges joined vertices at random by their degrees.

    training: int32[n], or int32[0] where nothing trains.
    """
    order = np.argsort(-degrees, kind="stable")[: np.count_nonzero(degrees)]
    assignment = np.full(len(degrees), -1, np.int32)
    _fill(order, training, np.array([caps.size, caps.training]), caps.parts, assignment)
    placed = assignment >= 0
    held = np.bincount(assignment[placed], degrees[placed], caps.parts) / max(1, degrees.sum())
    return assignment, 1.0 - float((held**2).sum())
