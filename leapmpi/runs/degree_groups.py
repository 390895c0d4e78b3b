"""Groups of in-degrees in records and reports."""

from __future__ import annotations

import numpy as np

FIRST_DEGREES = (0, 1, 2, 11, 101, 1001, 10001)
"""First degree of each group."""


def degree_labels() -> list[str]:
    """Return the names of the groups: 0, 1, 2-10 ... 10001+."""
    ends = [*(first - 1 for first in FIRST_DEGREES[1:]), None]
    pairs = zip(FIRST_DEGREES, ends, strict=True)
    return [f"{first}+" if end is None else str(first) if first == end else f"{first}-{end}" for first, end in pairs]


def degree_groups(degrees: np.ndarray) -> np.ndarray:
    """Return the group of each degree: int64[k], positions in `degree_labels`."""
    return np.searchsorted(np.array(FIRST_DEGREES), degrees, side="right") - 1
