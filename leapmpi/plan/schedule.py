"""Schedule of one iteration: which rank trains which roots at which time step, for which model.

Rank 0 makes a schedule and sends each rank the cells that it reads, in a flat buffer (schedule_buffers.py). So a
schedule may hold the cells of some ranks only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Held:
    """The ranks whose cells a schedule holds, and what it says of all of them."""

    ranks: tuple[int, ...]
    batch_size: int
    """Number of roots of the iteration, over all ranks."""
    local: bool
    """Whether every root is trained on its home rank."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """Roots sorted by cell. A cell holds the roots of one micro-batch: those of one rank in one time step.

    The cells of a rank follow each other in order of steps; any may be empty. The ranks are those of `held`, in that
    order, or all of them.
    """

    epoch: int
    iteration: int
    ranks: int
    time_steps: int
    roots: np.ndarray
    """int64[roots of the held cells]: renumbered ids, by rank, then step, then id."""
    cell_indptr: np.ndarray
    """int64[held ranks * time_steps + 1]: first root of each cell in `roots`."""
    model: np.ndarray
    """int64[held ranks * time_steps]: model, in [0, ranks), trained by each cell."""
    held: Held | None = None

    @property
    def batch_size(self) -> int:
        """Number of roots of the iteration, over all ranks."""
        return len(self.roots) if self.held is None else self.held.batch_size

    def cell(self, rank: int, step: int) -> np.ndarray:
        """Return the roots that `rank` trains at `step`: int64, a view. Raises IndexError if they are not held."""
        cell = self._cell(rank, step)
        return self.roots[self.cell_indptr[cell] : self.cell_indptr[cell + 1]]

    def rank_roots(self, rank: int) -> np.ndarray:
        """Return all roots that `rank` trains, step after step: int64, a view. Raises IndexError as `cell` does."""
        first = self._cell(rank, 0)
        last = self._cell(rank, self.time_steps - 1)
        return self.roots[self.cell_indptr[first] : self.cell_indptr[last + 1]]

    def is_local(self, rank_offsets: np.ndarray) -> bool:
        """Return whether every root is trained on its home rank; `rank_offsets` is int64[ranks + 1]."""
        if self.held is not None:
            return self.held.local
        filled, lowest, highest = self._extremes
        return bool(((lowest >= rank_offsets[filled]) & (highest < rank_offsets[filled + 1])).all())

    @cached_property
    def _extremes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ranks with roots, and the lowest and the highest root of each: int64[k]."""
        # All cells of a rank follow each other. In forecasts one schedule serves every rank.
        bounds = self.cell_indptr[:: self.time_steps]
        filled = np.flatnonzero(np.diff(bounds))
        if not len(filled):
            return filled, filled, filled
        starts = bounds[filled]
        return filled, np.minimum.reduceat(self.roots, starts), np.maximum.reduceat(self.roots, starts)

    def model_of(self, rank: int, step: int) -> int:
        """Return the model that `rank` trains at `step`. Raises IndexError if its cells are not held."""
        return int(self.model[self._cell(rank, step)])

    def loads(self) -> np.ndarray:
        """Return the number of roots per held rank and step: int64[held ranks, time_steps]."""
        return np.diff(self.cell_indptr).reshape(-1, self.time_steps)

    def _cell(self, rank: int, step: int) -> int:
        if not (0 <= rank < self.ranks and 0 <= step < self.time_steps):
            raise IndexError(f"no cell ({rank}, {step}) in {self.ranks} ranks x {self.time_steps} time steps")
        if self.held is None:
            return rank * self.time_steps + step
        if rank not in self.held.ranks:
            raise IndexError(f"the cells of rank {rank} are not held here, only those of {self.held.ranks}")
        return self.held.ranks.index(rank) * self.time_steps + step
