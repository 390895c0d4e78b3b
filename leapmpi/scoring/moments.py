"""Errors of a regression, target by target, as moments of batches that combine to those of all.

The variance is combined from means and sums of squares about them (Chan, Golub and LeVeque, 1979): plain sums of
squares would lose it where the mean is large.
"""

from __future__ import annotations

import numpy as np

COUNT, SQUARED, ABSOLUTE, MEAN, SPREAD = range(5)
"""Rows of `moments`: known targets, sums of squared and absolute errors, mean target, sum of squares about it."""

_ROUNDING = 1e-14
"""An r2 so close to 0 is 0: sums of the errors of a million targets may differ by as much."""


def moments(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compute moments float64[5, C] of predictions float[n, C] and targets float[n, C]; NaN targets do not count."""
    known = ~np.isnan(labels)
    truth = np.where(known, labels, 0).astype(np.float64)
    error = np.where(known, outputs - truth, 0)
    count = known.sum(axis=0)
    mean = truth.sum(axis=0) / np.maximum(count, 1)
    spread = np.where(known, truth - mean, 0)
    return np.stack(
        [count, np.square(error).sum(axis=0), np.abs(error).sum(axis=0), mean, np.square(spread).sum(axis=0)]
    )


def combined(rows: np.ndarray) -> np.ndarray:
    """Combine the moments of each batch, float64[batches, 5, C]."""
    total = rows.sum(axis=0)
    counts = rows[:, COUNT]
    mean = (counts * rows[:, MEAN]).sum(axis=0) / np.maximum(total[COUNT], 1)
    total[SPREAD] += (counts * np.square(rows[:, MEAN] - mean)).sum(axis=0)
    total[MEAN] = mean
    return total


def errors_by_target(found: np.ndarray) -> dict[str, np.ndarray]:
    """Compute mse, mae, rmse and r2 of each target, float64[C], from its moments; NaN without any known value.

    r2 is 1 - mse / variance, and NaN for a target that is the same for all.
    """
    count = np.where(found[COUNT] > 0, found[COUNT], np.nan)
    spread = np.where(found[SPREAD] > 0, found[SPREAD], np.nan)
    mse = found[SQUARED] / count
    return {"mse": mse, "mae": found[ABSOLUTE] / count, "rmse": np.sqrt(mse), "r2": _r2(found[SQUARED], spread)}


def _r2(squared: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Compute 1 - squared / spread, and 0 where rounding alone makes a difference, as with the mean as answer."""
    found = 1 - squared / spread
    return np.where(np.abs(found) < _ROUNDING, 0.0, found)


def mean_over_targets(found: np.ndarray, name: str) -> float:
    """Average the figure `name` over the targets for which it is defined; NaN where there are none."""
    values = errors_by_target(found)[name]
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")
