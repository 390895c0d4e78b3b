"""Groups of in-degrees by which records and reports tell vertices apart."""

from __future__ import annotations

import numpy as np

FIRST_DEGREES = (0, 1, 2, 11, 101, 1001, 10001)
"""The first degree of each group."""


def degree_labels() -> list[str]:
    """Names of the groups: 0, 1, 2-10 ... 10001+."""
    ends = [*(first - 1 for first in FIRST_DEGREES[1:]), None]
    pairs = zip(FIRST_DEGREES, ends, strict=True)
    return [f"{first}+" if end is None else str(first) if first == end else f"{first}-{end}" for first, end in pairs]


def degree_groups(degrees: np.ndarray) -> np.ndarray:
    """int64[k]: the group of each of the degrees int64[k], by its place in `degree_labels`."""
    return np.searchsorted(np.array(FIRST_DEGREES), degrees, side="right") - 1
