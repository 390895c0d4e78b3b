"""Right and wrong answers, class by class.

The predicted class is the largest output, the first on ties; a column of multi-label data is predicted when its output
is positive. A prediction made of NaN is wrong.
"""

from __future__ import annotations

import numpy as np


def outcomes(outputs: np.ndarray, labels: np.ndarray) -> tuple[int, int, int, int]:
    """(true positives, false positives, false negatives, all) over all classes together.

    Of multi-label data each column of each vertex counts; else an error is one false positive and one false negative.
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
    """int64[4, C]: true positives, false positives, false negatives, and vertices whose label is known.

    Of classes the last row says how many vertices are labelled, C times. A prediction of NaN is a false negative.
    """
    if labels.ndim == 2:
        known = ~np.isnan(labels)
        truth, predicted = _columns(outputs, labels)
        pairs = truth & predicted, ~truth & predicted & known, truth & ~predicted, known
        return np.stack([each.sum(axis=0) for each in pairs]).astype(np.int64)
    matrix = confusion(outputs, labels)
    right = np.diagonal(matrix)
    wrongly = matrix[:, :-1].sum(axis=0) - right
    missed = matrix.sum(axis=1) - right
    return np.stack([right, wrongly, missed, np.full(len(right), matrix.sum())])


def confusion(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """int64[C, C + 1]: vertices of each class (row) that are taken for each; in the last column, for none (NaN)."""
    classes = outputs.shape[1]
    truth, predicted = _classes(outputs, labels)
    places = truth * (classes + 1) + np.where(predicted < 0, classes, predicted)
    return np.bincount(places, minlength=classes * (classes + 1)).reshape(classes, classes + 1)


def _classes(outputs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """True and predicted class of the labelled vertices, int64; -1 where the outputs have a NaN."""
    labelled = labels >= 0
    outputs, truth = outputs[labelled], labels[labelled]
    predicted = outputs.argmax(axis=1)
    # argmax finds a NaN first.
    return truth, np.where(np.isnan(outputs[np.arange(len(truth)), predicted]), -1, predicted)


def _columns(outputs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether each label is there, and whether it is predicted; NaN of an output is the wrong one of both."""
    truth = labels > 0.5
    return truth, np.where(np.isnan(outputs), ~truth, outputs > 0)
