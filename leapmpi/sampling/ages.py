"""Columns that say how long before the time of its root a row was made.

A row of a table is read for roots of many times, and is older for the later ones, so its age is no stored column. With
the age a of a row, in spans of the training roots' times, the columns are log(1 + 1000 a) / log(1001), exp(-10 a) and
exp(-100 a): an age over all scales, and recency within a tenth and a hundredth of the span. (Models of RelBench read
times relative to the seed's too: Robinson et al., NeurIPS 2024.)
"""

from __future__ import annotations

import math

import numpy as np

AGES = 3
"""Number of columns."""

_FINEST = 1000.0
_DECAYS = 10.0, 100.0
_UNTIMED = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""Times of rows that are always seen, and never."""


def span_of(times: np.ndarray) -> float:
    """Return the span of `times` (numbers[n]), of training roots; 1 where they are equal."""
    timed = times[np.isfinite(times) & ~np.isin(times, _UNTIMED)]
    return float(np.ptp(timed.astype(np.float64))) or 1.0 if len(timed) else 1.0


def ages(bounds: np.ndarray, times: np.ndarray, span: float) -> np.ndarray:
    """Return the columns of rows with `times` (int64[n]) at `bounds` (numbers[n]): float32[n, AGES].

    They are zeros for rows without a time.
    """
    timed = ~np.isin(times, _UNTIMED)
    age = np.maximum(0.0, bounds.astype(np.float64) - np.where(timed, times, 0)) / span
    found = [np.log1p(_FINEST * age) / math.log1p(_FINEST), *(np.exp(-decay * age) for decay in _DECAYS)]
    return np.where(timed[:, None], np.stack(found, axis=1), 0.0).astype(np.float32)
