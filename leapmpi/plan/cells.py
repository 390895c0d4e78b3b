"""What a merging rule is given, and dealing by number, which two rules share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Cells:
    """Where each root of an iteration stands before merging: rank, step int64[roots]; cost float64[roots], its work."""

    ranks: int
    steps: int
    rank: np.ndarray
    step: np.ndarray
    cost: np.ndarray

    def loads(self) -> np.ndarray:
        """Roots per rank and step: int64[ranks, steps]."""
        return np.bincount(self._cell(), minlength=self.ranks * self.steps).reshape(self.ranks, self.steps)

    def costs(self) -> np.ndarray:
        """Cost per rank and step: float64[ranks, steps]."""
        added = np.bincount(self._cell(), self.cost, self.ranks * self.steps)
        return added.reshape(self.ranks, self.steps)

    def _cell(self) -> np.ndarray:
        return self.rank * self.steps + self.step


def deal_by_number(cells: Cells, kept: np.ndarray) -> np.ndarray:
    """The step of each root (int64[roots]) when dropped steps are dealt to `kept` ones (int64[T]) of the same rank.

    In order of steps, each cell is filled up to floor(roots of the rank / T) + 1.
    """
    step, dropped = cells.step.copy(), ~np.isin(cells.step, kept)
    loads = cells.loads()
    quota = loads.sum(axis=1) // len(kept) + 1
    room = np.maximum(quota[:, None] - loads[:, kept], 0)
    for rank in np.unique(cells.rank[dropped]):
        homeless = np.flatnonzero(dropped & (cells.rank == rank))
        step[homeless] = np.repeat(kept, room[rank])[: len(homeless)]
    return step
