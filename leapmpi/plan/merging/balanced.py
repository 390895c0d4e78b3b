"""`balanced`: make the costliest cell, which all ranks wait for, as cheap as can be.

Steps with the costliest cells are dropped: a cell that stays cannot be made smaller, while roots that are dealt anew
can be spread. They go, costliest first, to the kept step of their rank that has the least cost so far (Graham's
longest processing time rule).
"""

from __future__ import annotations

import numpy as np

from leapmpi.plan.cells import Cells
from leapmpi.system.counter_rng import DrawKey
from leapmpi.system.jit import compiled


@compiled
def _deal(order, rank, cost, costs, kept, step):
    """Put roots in `order` (int64) into the cheapest kept cell of their rank; adds to `costs` float64[ranks, steps]."""
    for i in order:
        row = costs[rank[i]]
        best = kept[0]
        for candidate in kept[1:]:
            if row[candidate] < row[best]:
                best = candidate
        step[i] = best
        row[best] += cost[i]


def merge(cells: Cells, time_steps: int, key: DrawKey) -> tuple[np.ndarray, np.ndarray]:
    """Keep the steps whose costliest cell is cheapest; among equals the earlier ones."""
    del key
    costs = cells.costs()
    kept = np.sort(np.argsort(costs.max(axis=0), kind="stable")[:time_steps])
    homeless = np.flatnonzero(~np.isin(cells.step, kept))
    order = homeless[np.argsort(-cells.cost[homeless], kind="stable")]
    step = cells.step.copy()
    _deal(order, cells.rank, cells.cost, costs, kept, step)
    return kept, step
