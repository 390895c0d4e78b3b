"""How good predictions are: plain numpy metrics, most of them as counts that add up over batches and ranks.

Vertices without a label (-1, or NaN in a column of multi-label data) do not count.
Labels are int64[n] class numbers, or float32[n, C] of zeros and ones for multi-label data.
"""

from __future__ import annotations

import numpy as np

from leapmpi.errors import ConfigError, nearest

COUNTED = ("accuracy", "f1-micro")
"""Metrics that are a function of summable counts."""

METRICS = (*COUNTED, "roc-auc")


def count(metric: str, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """What `value` needs to know of some predictions; add the counts of several batches.

    logits: float[n, C]. The predicted class is the largest logit, the first on ties; a multi-label column is
    predicted when its logit is positive. A prediction made of NaN is wrong.
    Returns int64[k]: for accuracy (right, all), where multi-label data counts each column of each vertex; for
    f1-micro (true positives, false positives, false negatives, all).

    Raises ConfigError for a metric that is not counted.
    """
    if metric not in COUNTED:
        raise ConfigError(f"no counts for metric {metric!r}; {nearest(metric, COUNTED)}")
    multi_label = labels.ndim == 2
    labelled = ~np.isnan(labels) if multi_label else labels >= 0
    logits, labels = logits[labelled], labels[labelled]
    total = len(labels)
    if multi_label:
        truth = labels > 0.5
        predicted = np.where(np.isnan(logits), ~truth, logits > 0)
        outcomes = truth & predicted, ~truth & predicted, truth & ~predicted
        tp, fp, fn = (int(np.count_nonzero(each)) for each in outcomes)
        right = total - fp - fn
    else:
        predicted = logits.argmax(axis=1)
        sound = ~np.isnan(logits[np.arange(total), predicted])  # argmax finds a NaN first
        right = tp = int(np.count_nonzero((predicted == labels) & sound))
        fp = fn = total - right
    return np.array([right, total] if metric == "accuracy" else [tp, fp, fn, total], np.int64)


TRIVIAL_ANSWERS = {"classes": "most frequent class", "multilabel": "same labels for all", "roc-auc": "chance"}
"""What a trivial score is called: for the metrics of classes, of multi-label data, and for roc-auc, where it is 0.5."""


def constant_answer(positives: np.ndarray, known: np.ndarray | None = None) -> np.ndarray:
    """Logits float64[C] that, given for every vertex, score best by accuracy or f1-micro on the vertices counted.

    positives: int64[C], vertices of each class, of which the most frequent is the answer. Of multi-label data those
    with each label, and known: int64[C], those of which it is known; the answer is the set of labels of the best f1.
    """
    answer = np.full(len(positives), -1.0)
    if known is None:
        answer[int(positives.argmax())] = 1.0
        return answer

    # The more frequent a label, the sooner it is worth its false positives.
    order = np.argsort(-positives / np.maximum(known, 1), kind="stable")
    scores = 2 * np.cumsum(positives[order]) / np.maximum(np.cumsum(known[order]) + positives.sum(), 1)
    answer[order[: int(scores.argmax()) + 1]] = 1.0
    return answer


def value(metric: str, counts: np.ndarray) -> float:
    """The metric in [0, 1] from summed counts; NaN when nothing was labelled.

    f1-micro is 2 TP / (2 TP + FP + FN), and 0 when that denominator is.
    """
    numbers = [int(c) for c in counts]
    if numbers[-1] == 0:
        return float("nan")
    if metric == "accuracy":
        right, total = numbers
        return right / total
    tp, fp, fn, _ = numbers
    return 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 0.0


def roc_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """The area under the ROC curve, exact, from average ranks on ties (Mann-Whitney).

    int64[n] labels 0, 1 or -1: scores float[n], or logits float[n, 2] whose difference is the score.
    float[n, C] multi-label: the mean over the columns that have both a positive and a negative.
    NaN when no column has both, or a score is NaN.

    Raises ConfigError when there are more than two classes.
    """
    if labels.ndim == 2:
        columns = enumerate(~np.isnan(labels).T)
        found = [_area(scores[known, column], labels[known, column] > 0.5) for column, known in columns]
        areas = [area for area in found if area is not None]
        return float(np.mean(areas)) if areas else float("nan")
    if (labels.size and labels.max() > 1) or (scores.ndim == 2 and scores.shape[1] != 2):
        raise ConfigError("metric 'roc-auc' needs two classes or multi-label data; use accuracy or f1-micro")
    if scores.ndim == 2:
        scores = scores[:, 1].astype(np.float64) - scores[:, 0]
    area = _area(scores[labels >= 0], labels[labels >= 0] == 1)
    return float("nan") if area is None else area


def _area(scores: np.ndarray, positive: np.ndarray) -> float | None:
    """The share of (positive, negative) pairs ranked rightly, ties half; None when a class is missing."""
    positives = int(np.count_nonzero(positive))
    negatives = len(positive) - positives
    if not positives or not negatives:
        return None
    if np.isnan(scores).any():
        return float("nan")
    _, group, size = np.unique(scores, return_inverse=True, return_counts=True)
    twice_rank = 2 * np.cumsum(size) - size + 1  # of each group of ties, counted from 1
    twice_wins = int(twice_rank[group[positive]].sum()) - positives * (positives + 1)
    return twice_wins / (2 * positives * negatives)
