"""`paper`: drop the steps with the smallest load (LeapGNN, arXiv 2409.00657, micrograph merging).

The load of a step is the number of roots of its smallest cell.
"""

from __future__ import annotations

import numpy as np

from leapmpi.plan.cells import Cells, deal_by_number
from leapmpi.system.counter_rng import DrawKey


def merge(cells: Cells, time_steps: int, key: DrawKey) -> tuple[np.ndarray, np.ndarray]:
    """Keep the steps with the largest smallest cells; among equals the later ones."""
    del key
    smallest = cells.loads().min(axis=0)
    kept = np.sort(np.argsort(smallest, kind="stable")[cells.steps - time_steps :])
    return kept, deal_by_number(cells, kept)
