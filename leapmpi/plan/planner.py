"""Planner: from a batch of roots to a Schedule.

`plan_pull` distributes roots over the ranks at random: ordinary data parallelism. `plan_leap` assigns each root to its
home rank (LeapGNN, arXiv 2409.00657). With as many time steps as ranks, models visit the ranks in a ring. With fewer,
steps are merged; with one, each rank trains all its roots at once.
"""

from __future__ import annotations

import numpy as np

from leapmpi.errors import ConfigError
from leapmpi.plan.homes import home_of
from leapmpi.plan.root_assignment import MergeRule, RootAssignment, Rule
from leapmpi.plan.schedule import Schedule
from leapmpi.registry import Registry
from leapmpi.sampling.block import indptr_of
from leapmpi.system.counter_rng import PLAN, DrawKey


def merge_rule(name: str) -> Rule:
    """Return the merge rule called `name`. Raises ConfigError for an unknown one."""
    return Registry("merge rule", "leapmpi.plan.merging", MergeRule).load(name).merge


def plan_pull(batch: np.ndarray, ranks: int, *, epoch: int = 0, iteration: int = 0) -> Schedule:
    """Assign consecutive slices of `batch` (int64[B], already shuffled) to the ranks, in one time step.

    Slices differ in length by one at most. Rank r trains model r.
    """
    return _schedule(batch, _slice_of(len(batch), ranks), ranks, np.zeros(1, np.int64), epoch, iteration)


def plan_leap(
    batch: np.ndarray,
    rank_offsets: np.ndarray,
    time_steps: int,
    *,
    merge: Rule | None = None,
    cost: np.ndarray | None = None,
    seed: int = 0,
    epoch: int = 0,
    iteration: int = 0,
) -> Schedule:
    """Assign each root of `batch` (int64[B]) to its home rank, by `rank_offsets` int64[ranks + 1].

    time_steps = ranks: the batch is cut into one slice per model. Rank s trains its roots of slice (s + t) mod
    ranks at step t, when model (s + t) mod ranks visits it. Fewer: `merge` (None: `paper`) drops steps and moves their
    roots to the kept steps, by `cost` (float64[B], 1 if None); models skip the dropped steps. time_steps = 1: all roots
    of a rank at once.

    Raises ConfigError for time steps that are not between 1 and ranks, ValueError for roots outside the graph.
    """
    ranks = len(rank_offsets) - 1
    if not 1 <= time_steps <= ranks:
        raise ConfigError(f"--time-steps must be between 1 and the number of ranks ({ranks}), not {time_steps}")
    if len(batch) and not rank_offsets[0] <= batch.min() <= batch.max() < rank_offsets[-1]:
        raise ValueError(f"roots must be in [{rank_offsets[0]}, {rank_offsets[-1]})")
    trained_by = home_of(batch, rank_offsets)
    if time_steps == 1:
        return _schedule(batch, trained_by, ranks, np.zeros(1, np.int64), epoch, iteration)

    # In the full ring, rank s trains slice m of the batch when model m visits it.
    step = (_slice_of(len(batch), ranks) - trained_by) % ranks
    kept = np.arange(ranks)

    # With fewer steps than ranks, a rule drops some.
    if time_steps < ranks:
        roots = RootAssignment(ranks, ranks, trained_by, step, np.ones(len(batch)) if cost is None else cost)
        kept, step = (merge or merge_rule("paper"))(roots, time_steps, DrawKey(PLAN, seed, epoch, iteration))
    micro_batch = trained_by * time_steps + np.searchsorted(kept, step)
    return _schedule(batch, micro_batch, ranks, kept, epoch, iteration)


def _slice_of(size: int, slices: int) -> np.ndarray:
    """Return the slice, of `slices` equal ones, of each of `size` positions: int64[size]."""
    bounds = np.arange(slices + 1, dtype=np.int64) * size // slices
    return np.repeat(np.arange(slices), np.diff(bounds))


def _schedule(
    batch: np.ndarray, micro_batch: np.ndarray, ranks: int, steps: np.ndarray, epoch: int, iteration: int
) -> Schedule:
    """Return the schedule with root i of `batch` in micro-batch number micro_batch[i].

    steps: int64[T], the kept steps of the ring.
    """
    micro_batches = ranks * len(steps)
    indptr = indptr_of(np.bincount(micro_batch, minlength=micro_batches))
    # Vertices with near numbers share neighbours: sorting keeps their rows in the processor's cache.
    roots = np.asarray(batch, np.int64)[np.lexsort((batch, micro_batch))]
    model = (np.arange(ranks)[:, None] + steps).reshape(-1) % ranks
    return Schedule(epoch, iteration, ranks, len(steps), roots, indptr, model)
