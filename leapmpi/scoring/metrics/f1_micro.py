"""F1 of all classes, or labels, together: 2 TP / (2 TP + FP + FN), and 0 when that denominator is."""

from __future__ import annotations

import numpy as np

from leapmpi.scoring.class_counts import outcomes
from leapmpi.scoring.metric import CountedMetric, MetricMember


class F1Micro(CountedMetric):
    """The micro F1, from true positives, false positives and false negatives."""

    scores = ("multi-class", "multi-label")

    def counts(self, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Count true positives, false positives, false negatives and all: int64[4]."""
        return np.array(outcomes(outputs, labels), np.int64)

    def value(self, counts: np.ndarray) -> float:
        """Compute the F1, in [0, 1]."""
        tp, fp, fn, total = counts.tolist()
        if not total:
            return float("nan")
        return 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 0.0


MEMBER = MetricMember(F1Micro)
