"""The area under the ROC curve, exact, from average ranks on ties (Mann-Whitney); the mean over labels."""

from __future__ import annotations

import numpy as np

from leapmpi.nn.task import Task
from leapmpi.scoring.metric import Metric, MetricMember
from leapmpi.scoring.ranking import mean_over_columns, needs_two


class RocAuc(Metric):
    """The share of (positive, negative) pairs ranked rightly, ties half."""

    scores = ("multi-class", "multi-label")
    trivial = "chance"

    def refusal(self, task: Task) -> str | None:
        """Refuse all but two classes or multi-label data."""
        return super().refusal(task) or needs_two(self.name, task.answers, task.width)

    def score(self, outputs: np.ndarray, labels: np.ndarray) -> float:
        """Compute the area, in [0, 1]; columns without a positive or a negative do not count."""
        return mean_over_columns(_area, "roc-auc", outputs, labels)


def _area(scores: np.ndarray, positive: np.ndarray) -> float:
    positives = int(np.count_nonzero(positive))
    _, group, size = np.unique(scores, return_inverse=True, return_counts=True)
    twice_rank = 2 * np.cumsum(size) - size + 1  # of each group of ties, counted from 1
    twice_wins = int(twice_rank[group[positive]].sum()) - positives * (positives + 1)
    return twice_wins / (2 * positives * (len(positive) - positives))


MEMBER = MetricMember(RocAuc)
