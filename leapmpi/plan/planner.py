"""From a batch of roots to a Schedule: who trains which root, when, and as which model.

`plan_pull` deals roots to ranks at random: ordinary data parallelism. `plan_leap` sends each root to its home
(LeapGNN, arXiv 2409.00657): with as many time steps as ranks, models visit the ranks in a ring; with one,
each rank trains all its home roots at once.
"""

from __future__ import annotations

import numpy as np

from leapmpi.errors import ConfigError
from leapmpi.plan.homes import home_of
from leapmpi.plan.schedule import Schedule


def plan_pull(batch: np.ndarray, ranks: int, *, epoch: int = 0, iteration: int = 0) -> Schedule:
    """Consecutive slices of `batch` (int64[B], shuffled already) to the ranks, in one time step.

    Slices differ in length by one at most. Rank r trains model r.
    """
    return _schedule(batch, _slice_of(len(batch), ranks), ranks, 1, epoch, iteration)


def plan_leap(
    batch: np.ndarray, rank_offsets: np.ndarray, time_steps: int, *, epoch: int = 0, iteration: int = 0
) -> Schedule:
    """Each root of `batch` (int64[B]) to its home rank, by `rank_offsets` int64[ranks + 1].

    time_steps = 1: all home roots at once. time_steps = ranks: the batch is cut into one slice per model, and rank s
    trains its home roots of slice (s + t) mod ranks at step t, when model (s + t) mod ranks visits it.

    Raises ConfigError for other numbers of time steps, ValueError for roots outside the graph.
    """
    ranks = len(rank_offsets) - 1
    if time_steps not in (1, ranks):
        raise ConfigError(f"--time-steps must be 1 or the number of ranks ({ranks}) for now, not {time_steps}")
    if len(batch) and not rank_offsets[0] <= batch.min() <= batch.max() < rank_offsets[-1]:
        raise ValueError(f"roots must lie in [{rank_offsets[0]}, {rank_offsets[-1]})")
    home = home_of(batch, rank_offsets)
    if time_steps == 1:
        return _schedule(batch, home, ranks, 1, epoch, iteration)
    step = (_slice_of(len(batch), ranks) - home) % ranks
    return _schedule(batch, home * time_steps + step, ranks, time_steps, epoch, iteration)


def _slice_of(size: int, slices: int) -> np.ndarray:
    """The slice, of `slices` equal ones, in which each of `size` positions falls: int64[size]."""
    bounds = np.arange(slices + 1, dtype=np.int64) * size // slices
    return np.repeat(np.arange(slices), np.diff(bounds))


def _schedule(batch: np.ndarray, cell: np.ndarray, ranks: int, time_steps: int, epoch: int, iteration: int) -> Schedule:
    """The schedule that puts root i of `batch` into cell `cell[i]`."""
    cells = ranks * time_steps
    indptr = np.zeros(cells + 1, np.int64)
    np.cumsum(np.bincount(cell, minlength=cells), out=indptr[1:])
    roots = np.asarray(batch, np.int64)[np.argsort(cell, kind="stable")]
    rank, step = np.divmod(np.arange(cells, dtype=np.int64), time_steps)
    return Schedule(epoch, iteration, ranks, time_steps, roots, indptr, (rank + step) % ranks)
