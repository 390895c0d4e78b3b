"""`random`: drop steps at random, the baseline that the paper compares its rule with."""

from __future__ import annotations

import numpy as np

from leapmpi.plan.cells import Cells, deal_by_number
from leapmpi.system.counter_rng import PLAN, DrawKey, fold_all, key_hash


def merge(cells: Cells, time_steps: int, key: DrawKey) -> tuple[np.ndarray, np.ndarray]:
    """Keep steps drawn for the iteration of `key`."""
    drawn = fold_all(key_hash(key._replace(stream=PLAN)), np.arange(cells.steps))
    kept = np.sort(np.argsort(drawn, kind="stable")[:time_steps])
    return kept, deal_by_number(cells, kept)
