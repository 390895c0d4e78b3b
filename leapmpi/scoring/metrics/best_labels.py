"""The K best labels of each row against those that it has: MAP, precision and recall at K, means over rows with some.

Labels are ordered by their outputs, equal ones by number; NaN comes last. The average precision at K divides by the
smaller of K and the number of labels, so that the best order scores 1.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial

import numpy as np

from leapmpi.scoring.metric import CountedMetric, MetricMember


class BestLabels(CountedMetric):
    """A mean over rows with labels of a figure of the first `most` labels."""

    scores = ("multi-label",)
    trivial = "the most frequent for all"

    def __init__(self, most: int) -> None:
        self.most = most

    @abstractmethod
    def of_rows(self, right: np.ndarray, had: np.ndarray) -> np.ndarray:
        """Compute the figure of each row. Pure.

        right: bool[n, most], whether the row has the label at each place; had: int64[n], how many it has, at least one.
        """

    def counts(self, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Add up the figures, and count the rows with labels: float64[2]."""
        truth = labels > 0.5
        had = truth.sum(axis=1)
        truth, outputs, had = truth[had > 0], outputs[had > 0], had[had > 0]
        best = np.argsort(-outputs, axis=1, kind="stable")[:, : self.most]
        # With fewer labels than `most`, the places that are left count as wrong.
        right = np.zeros((len(had), self.most), bool)
        right[:, : best.shape[1]] = np.take_along_axis(truth, best, axis=1)
        return np.array([self.of_rows(right, had).sum(), len(had)], np.float64)

    def value(self, counts: np.ndarray) -> float:
        """Compute the mean; NaN without a row that has labels."""
        return float(counts[0] / counts[1]) if counts[1] else float("nan")


class AveragePrecision(BestLabels):
    """The mean precision at the places of right labels (MAP@K)."""

    def of_rows(self, right: np.ndarray, had: np.ndarray) -> np.ndarray:
        precision = np.cumsum(right, axis=1) / np.arange(1, self.most + 1)
        return (precision * right).sum(axis=1) / np.minimum(had, self.most)


class Precision(BestLabels):
    """The share of the first labels that are right."""

    def of_rows(self, right: np.ndarray, had: np.ndarray) -> np.ndarray:
        return right.mean(axis=1)


class Recall(BestLabels):
    """The share of a row's labels that are among the first."""

    def of_rows(self, right: np.ndarray, had: np.ndarray) -> np.ndarray:
        return right.sum(axis=1) / had


_KINDS: dict[str, Callable[[int], BestLabels]] = {"map": AveragePrecision, "precision": Precision, "recall": Recall}

MEMBER = MetricMember(
    {f"{name}-{most}": partial(kind, most) for name, kind in _KINDS.items() for most in (1, 5, 10, 12, 20, 50)}
)
