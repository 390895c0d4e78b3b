"""The share of vertices whose class is predicted."""

from __future__ import annotations

import numpy as np

from leapmpi.scoring.class_counts import outcomes
from leapmpi.scoring.metric import CountedMetric, MetricMember


class Accuracy(CountedMetric):
    """The number of right answers over all."""

    scores = ("multi-class",)

    def counts(self, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Count right answers and all, int64[2]; in multi-label data each column of each vertex counts."""
        _, fp, fn, total = outcomes(outputs, labels)
        return np.array([total - (fp + fn if labels.ndim == 2 else fp), total], np.int64)

    def value(self, counts: np.ndarray) -> float:
        """Compute the accuracy, in [0, 1]."""
        right, total = counts.tolist()
        return right / total if total else float("nan")


MEMBER = MetricMember(Accuracy)
