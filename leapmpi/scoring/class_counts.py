"""Right and wrong answers, class by class.

The predicted class is the largest output, the first on ties; a column of multi-label data is predicted when its output
is positive. A prediction made of NaN is wrong.
"""

from __future__ import annotations

import numpy as np


def outcomes(outputs: np.ndarray, labels: np.ndarray) -> tuple[int, int, int, int]:
    """Count (true positives, false positives, false negatives, all) over all classes together.

    In multi-label data each column of each vertex counts; else an error is one false positive and one false negative.
    """
    if labels.ndim == 2:
        known = ~np.isnan(labels)
        truth, predicted = _columns(outputs[known], labels[known])
        pairs = truth & predicted, ~truth & predicted, truth & ~predicted
        tp, fp, fn = (int(np.count_nonzero(each)) for each in pairs)
        return tp, fp, fn, len(truth)
    truth, predicted = _classes(outputs, labels)
    right = int(np.count_nonzero(truth == predicted))
    return right, len(truth) - right, len(truth) - right, len(truth)


def outcomes_by_class(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Count true positives, false positives, false negatives, and vertices with a known label: int64[4, C].

    For classes the last row repeats the number of labelled vertices C times. A prediction of NaN is a false negative.
    """
    if labels.ndim == 2:
        known = ~np.isnan(labels)
        truth, predicted = _columns(outputs, labels)
        pairs = truth & predicted, ~truth & predicted & known, truth & ~predicted, known
        return np.stack([each.sum(axis=0) for each in pairs]).astype(np.int64)
    truth, predicted = _classes(outputs, labels)
    classes = outputs.shape[1]
    right, had, given = (
        np.bincount(each, minlength=classes) for each in (truth[truth == predicted], truth, predicted[predicted >= 0])
    )
    return np.stack([right, given - right, had - right, np.full(classes, len(truth))])


def confusions(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Count pairs of class and predicted class (-1 for NaN), right ones included: int64[k, 3], ascending."""
    pairs, counts = np.unique(np.column_stack(_classes(outputs, labels)), axis=0, return_counts=True)
    return np.column_stack([pairs, counts]).astype(np.int64)


def added_up(rows: np.ndarray) -> np.ndarray:
    """Add up the `confusions` of several batches or ranks, given one below the other: int64[k, 3]."""
    pairs, place = np.unique(rows[:, :2], axis=0, return_inverse=True)
    return np.column_stack([pairs, np.bincount(place.reshape(-1), rows[:, 2], len(pairs))]).astype(np.int64)


def _classes(outputs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return true and predicted classes of the labelled vertices, int64; -1 where the outputs have a NaN."""
    labelled = labels >= 0
    outputs, truth = outputs[labelled], labels[labelled]
    predicted = outputs.argmax(axis=1)
    # argmax finds a NaN first.
    return truth, np.where(np.isnan(outputs[np.arange(len(truth)), predicted]), -1, predicted)


def _columns(outputs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each label is present, and whether it is predicted; an output of NaN counts as wrong."""
    truth = labels > 0.5
    return truth, np.where(np.isnan(outputs), ~truth, outputs > 0)
