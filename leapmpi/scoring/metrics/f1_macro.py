"""The mean of the F1 of the classes, or labels, each counting alike.

Classes that no labelled vertex has and none is predicted to have do not count, nor do labels known of no vertex.
"""

from __future__ import annotations

import numpy as np

from leapmpi.nn.task import Task
from leapmpi.scoring.class_counts import outcomes_by_class
from leapmpi.scoring.metric import CountedMetric, MetricMember


class F1Macro(CountedMetric):
    """The macro F1, from true positives, false positives and false negatives of each class."""

    scores = ("multi-class", "multi-label")

    def counts(self, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Count true positives, false positives, false negatives of each class, and whether it counts: int64[4 C]."""
        found = outcomes_by_class(outputs, labels)
        # Of classes the fourth row is the same for all, and would count those that never occur.
        if labels.ndim == 1:
            found[3] = found[:3].sum(axis=0)
        return found.ravel()

    def value(self, counts: np.ndarray) -> float:
        """Compute the mean F1, in [0, 1]."""
        tp, fp, fn, counted = counts.reshape(4, -1)
        f1 = 2 * tp / np.maximum(2 * tp + fp + fn, 1)
        return float(f1[counted > 0].mean()) if counted.any() else float("nan")

    def best_constant(self, answer: np.ndarray, task: Task) -> np.ndarray:
        """Return all labels in multi-label data: that raises the F1 of some, and lowers none."""
        return np.ones_like(answer) if task.answers == "multi-label" else answer


MEMBER = MetricMember(F1Macro)
