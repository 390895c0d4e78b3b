"""From a batch of roots to a Schedule: which rank trains which root, in which time step, as which model.

`plan_pull` distributes roots over the ranks at random: ordinary data parallelism. `plan_leap` assigns each root to its
home rank (LeapGNN, arXiv 2409.00657). With as many time steps as ranks, models visit the ranks in a ring; with fewer,
steps are merged; with one, each rank trains all its roots at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from leapmpi.errors import ConfigError
from leapmpi.plan.homes import home_of
from leapmpi.plan.merging import paper
from leapmpi.plan.root_assignment import RootAssignment
from leapmpi.plan.schedule import Schedule
from leapmpi.registry import Registry
from leapmpi.sampling.block import indptr_of
from leapmpi.system.counter_rng import PLAN, DrawKey

Rule = Callable[[RootAssignment, int, DrawKey], tuple[np.ndarray, np.ndarray]]
"""How time steps are merged: see leapmpi/plan/merging/__init__.py."""


def merge_rule(name: str) -> Rule:
    """The merging rule called `name`. Raises ConfigError for an unknown one."""
    return Registry("merge rule", "leapmpi.plan.merging").load(name).merge


def plan_pull(batch: np.ndarray, ranks: int, *, epoch: int = 0, iteration: int = 0) -> Schedule:
    """Consecutive slices of `batch` (int64[B], shuffled already) to the ranks, in one time step.

    Slices differ in length by one at most. Rank r trains model r.
    """
    return _schedule(batch, _slice_of(len(batch), ranks), ranks, np.zeros(1, np.int64), epoch, iteration)


def plan_leap(
    batch: np.ndarray,
    rank_offsets: np.ndarray,
    time_steps: int,
    *,
    merge: Rule = paper.merge,
    cost: np.ndarray | None = None,
    seed: int = 0,
    epoch: int = 0,
    iteration: int = 0,
) -> Schedule:
    """Each root of `batch` (int64[B]) to its home rank, by `rank_offsets` int64[ranks + 1].

    time_steps = ranks: the batch is cut into one slice per model, and rank s trains its roots of slice (s + t) mod
    ranks at step t, when model (s + t) mod ranks visits it. Fewer: `merge` drops steps and moves their roots to the
    kept steps, by `cost` (float64[B], 1 when None); models skip the dropped steps. time_steps = 1: all roots of a rank
    at once.

    Raises ConfigError for time steps that are not between 1 and ranks, ValueError for roots outside the graph.
    """
    ranks = len(rank_offsets) - 1
    if not 1 <= time_steps <= ranks:
        raise ConfigError(f"--time-steps must lie between 1 and the number of ranks ({ranks}), not {time_steps}")
    if len(batch) and not rank_offsets[0] <= batch.min() <= batch.max() < rank_offsets[-1]:
        raise ValueError(f"roots must lie in [{rank_offsets[0]}, {rank_offsets[-1]})")
    trained_by = home_of(batch, rank_offsets)
    if time_steps == 1:
        return _schedule(batch, trained_by, ranks, np.zeros(1, np.int64), epoch, iteration)

    # The full ring: slice m of the batch is trained by rank s at the step when model m visits it.
    step = (_slice_of(len(batch), ranks) - trained_by) % ranks
    kept = np.arange(ranks)

    # Fewer steps than ranks: some are dropped.
    if time_steps < ranks:
        roots = RootAssignment(ranks, ranks, trained_by, step, np.ones(len(batch)) if cost is None else cost)
        kept, step = merge(roots, time_steps, DrawKey(PLAN, seed, epoch, iteration))
    micro_batch = trained_by * time_steps + np.searchsorted(kept, step)
    return _schedule(batch, micro_batch, ranks, kept, epoch, iteration)


def _slice_of(size: int, slices: int) -> np.ndarray:
    """The slice, of `slices` equal ones, that each of `size` positions belongs to: int64[size]."""
    bounds = np.arange(slices + 1, dtype=np.int64) * size // slices
    return np.repeat(np.arange(slices), np.diff(bounds))


def _schedule(
    batch: np.ndarray, micro_batch: np.ndarray, ranks: int, steps: np.ndarray, epoch: int, iteration: int
) -> Schedule:
    """The schedule in which root i of `batch` is in micro-batch number micro_batch[i].

    steps: int64[T], the kept steps of the ring.
    """
    micro_batches = ranks * len(steps)
    indptr = indptr_of(np.bincount(micro_batch, minlength=micro_batches))
    # Vertices with near numbers share neighbours, whose rows are then still in the processor's cache.
    roots = np.asarray(batch, np.int64)[np.lexsort((batch, micro_batch))]
    model = (np.arange(ranks)[:, None] + steps).reshape(-1) % ranks
    return Schedule(epoch, iteration, ranks, len(steps), roots, indptr, model)
