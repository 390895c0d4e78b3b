"""Errors of a regression, each the mean over targets: mae, mse, rmse, and r2, which is 1 - mse / variance."""

from __future__ import annotations

from functools import partial

import numpy as np

from leapmpi.scoring.metric import CountedMetric, MetricMember
from leapmpi.scoring.moments import combined, mean_over_targets, moments


class RegressionError(CountedMetric):
    """The mean over targets of `figure`, a key of moments.errors_by_target."""

    scores = ("regression",)

    def __init__(self, figure: str, higher_is_better: bool = False) -> None:
        self.figure, self.higher_is_better = figure, higher_is_better

    def counts(self, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the moments of errors and targets, float64[5, C]."""
        return moments(outputs, labels)

    def combined(self, rows: np.ndarray) -> np.ndarray:
        """Combine moments about a common mean."""
        return combined(rows)

    def value(self, counts: np.ndarray) -> float:
        """Average the figure over targets: at most 1 for r2, at least 0 for the others."""
        return mean_over_targets(counts, self.figure)


MEMBER = MetricMember(
    {
        **{figure: partial(RegressionError, figure) for figure in ("mae", "mse", "rmse")},
        "r2": partial(RegressionError, "r2", higher_is_better=True),
    }
)
