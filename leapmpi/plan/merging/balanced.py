"""Merge rule `balanced`: minimize the costliest micro-batch, which all ranks wait for.

Steps with the costliest micro-batches are dropped: a kept micro-batch cannot get smaller, while the roots of a dropped
one can be spread. These roots go, costliest first, to the kept step of their rank with the least cost so far. This is
the longest-processing-time rule (Graham, "Bounds on multiprocessing timing anomalies", SIAM J. Appl. Math. 17(2),
1969).
"""

from __future__ import annotations

import numpy as np

from leapmpi.plan.root_assignment import MergeRule, RootAssignment
from leapmpi.system.counter_rng import DrawKey
from leapmpi.system.jit import compiled


@compiled
def _spread(order, rank, cost, costs, kept, step):
    """Put the roots in `order` (int64) into the cheapest kept micro-batch of their rank.

    Adds their cost to `costs` float64[ranks, steps] and writes their step to `step` int64[roots].
    """
    for i in order:
        row = costs[rank[i]]
        best = kept[0]
        for candidate in kept[1:]:
            if row[candidate] < row[best]:
                best = candidate
        step[i] = best
        row[best] += cost[i]


def merge(roots: RootAssignment, time_steps: int, key: DrawKey) -> tuple[np.ndarray, np.ndarray]:
    """Keep the steps with the cheapest costliest micro-batches; of equal ones the earlier."""
    costs = roots.costs()
    kept = np.sort(np.argsort(costs.max(axis=0), kind="stable")[:time_steps])
    moved = np.flatnonzero(~np.isin(roots.step, kept))
    order = moved[np.argsort(-roots.cost[moved], kind="stable")]
    step = roots.step.copy()
    _spread(order, roots.rank, roots.cost, costs, kept, step)
    return kept, step


MEMBER = MergeRule(merge)
