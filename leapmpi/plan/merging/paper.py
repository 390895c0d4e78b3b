"""Merge rule `paper`: drop the steps with the smallest load (LeapGNN, arXiv 2409.00657, micrograph merging).

The load of a step is the number of roots of its smallest micro-batch.
"""

from __future__ import annotations

import numpy as np

from leapmpi.plan.root_assignment import MergeRule, RootAssignment, fill_to_average
from leapmpi.system.counter_rng import DrawKey


def merge(roots: RootAssignment, time_steps: int, key: DrawKey) -> tuple[np.ndarray, np.ndarray]:
    """Keep the steps with the largest smallest micro-batches; of equal ones the later."""
    smallest = roots.loads().min(axis=0)
    kept = np.sort(np.argsort(smallest, kind="stable")[roots.steps - time_steps :])
    return kept, fill_to_average(roots, kept)


MEMBER = MergeRule(merge)
