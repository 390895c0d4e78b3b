"""Average precision: the sum over recall steps of step x precision, exact, ties as one step; the mean over labels.

Columns without a positive or a negative do not count.
"""

from __future__ import annotations

import numpy as np

from leapmpi.nn.task import Task
from leapmpi.scoring.metric import Metric, MetricMember
from leapmpi.scoring.ranking import mean_over_columns, needs_two


class AveragePrecision(Metric):
    """The average precision of scores, not of predictions: no threshold is chosen."""

    scores = ("multi-class", "multi-label")
    trivial = "chance"

    def refusal(self, task: Task) -> str | None:
        """Refuse all but two classes or multi-label data."""
        return super().refusal(task) or needs_two(self.name, task.answers, task.width)

    def score(self, outputs: np.ndarray, labels: np.ndarray) -> float:
        """Compute the average precision, in [0, 1]."""
        return mean_over_columns(_precision, "average-precision", outputs, labels)


def _precision(scores: np.ndarray, positive: np.ndarray) -> float:
    # Groups of equal scores, the highest first.
    _, group = np.unique(-scores, return_inverse=True)
    found = np.bincount(group, weights=positive)
    taken, right = np.cumsum(np.bincount(group)), np.cumsum(found)
    return float((found * right / taken).sum() / right[-1])


MEMBER = MetricMember(AveragePrecision)
