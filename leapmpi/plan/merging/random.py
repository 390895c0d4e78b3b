"""Merge rule `random`: drop random steps, the baseline of the LeapGNN paper."""

from __future__ import annotations

import numpy as np

from leapmpi.plan.root_assignment import MergeRule, RootAssignment, fill_to_average
from leapmpi.system.counter_rng import PLAN, DrawKey, fold_all, key_hash


def merge(roots: RootAssignment, time_steps: int, key: DrawKey) -> tuple[np.ndarray, np.ndarray]:
    """Keep steps drawn for the iteration of `key`."""
    drawn = fold_all(key_hash(key._replace(stream=PLAN)), np.arange(roots.steps))
    kept = np.sort(np.argsort(drawn, kind="stable")[:time_steps])
    return kept, fill_to_average(roots, kept)


MEMBER = MergeRule(merge)
