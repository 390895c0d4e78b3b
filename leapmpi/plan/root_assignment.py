"""Input of merge rules (rank, time step and cost of each root), and the refill of time steps that two rules share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from leapmpi.registry import Member
from leapmpi.system.counter_rng import DrawKey


@dataclass(frozen=True, eq=False)
class RootAssignment:
    """Rank, time step and cost of each root before time steps are merged.

    The roots of one rank and one time step are a micro-batch.
    """

    ranks: int
    steps: int
    rank: np.ndarray
    """int64[roots]: rank of each root."""
    step: np.ndarray
    """int64[roots]: time step of each root."""
    cost: np.ndarray
    """float64[roots]: expected work of the root's micrograph."""

    def loads(self) -> np.ndarray:
        """Return the number of roots per rank and step: int64[ranks, steps]."""
        return self._added(None)

    def costs(self) -> np.ndarray:
        """Return the cost per rank and step: float64[ranks, steps]."""
        return self._added(self.cost)

    def _added(self, weights: np.ndarray | None) -> np.ndarray:
        added = np.bincount(self.rank * self.steps + self.step, weights, self.ranks * self.steps)
        return added.reshape(self.ranks, self.steps)


def fill_to_average(roots: RootAssignment, kept: np.ndarray) -> np.ndarray:
    """Move roots of dropped steps to the `kept` steps (int64[T]) of their rank; return int64[roots], steps.

    In order of steps, each micro-batch is filled up to floor(roots of the rank / T) + 1 roots.
    """
    step = roots.step.copy()
    dropped = ~np.isin(roots.step, kept)

    # Capacity of each kept micro-batch: int64[ranks, T].
    loads = roots.loads()
    quota = loads.sum(axis=1) // len(kept) + 1
    room = np.maximum(quota[:, None] - loads[:, kept], 0)

    for rank in np.unique(roots.rank[dropped]):
        moved = np.flatnonzero(dropped & (roots.rank == rank))
        step[moved] = np.repeat(kept, room[rank])[: len(moved)]
    return step


Rule = Callable[[RootAssignment, int, DrawKey], tuple[np.ndarray, np.ndarray]]
"""Merge rule: see leapmpi/plan/merging/__init__.py."""


@dataclass(frozen=True)
class MergeRule(Member):
    """A merge rule."""

    merge: Rule
