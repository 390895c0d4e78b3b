"""Figures of how well scores rank positives above negatives: exact, with ties, column by column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from leapmpi.errors import ConfigError
from leapmpi.nn.task import Task
from leapmpi.scoring.metric import Metric

Figure = Callable[[np.ndarray, np.ndarray], float]
"""A figure of scores float[n] without NaN, and their positives, bool[n]; both kinds occur."""


class RankingMetric(Metric):
    """A figure of scores, not of predictions: no threshold is chosen."""

    scores = ("multi-class", "multi-label")
    trivial = "chance"

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def refusal(self, task: Task) -> str | None:
        """Refuse all but two classes or multi-label data."""
        if task.answers == "multi-class" and task.width != 2:
            return f"{self.name} needs 2 classes or multi-label data, this dataset has {task.width} classes"
        return super().refusal(task)

    def score(self, outputs: np.ndarray, labels: np.ndarray) -> float:
        """Compute the figure of two classes, or its mean over columns of multi-label data with both kinds.

        int64[n] labels 0, 1 or -1: outputs are float[n] scores, or float[n, 2] whose difference is the score.
        float[n, C] labels of multi-label data: one score for each. NaN when no column has both, or a score is NaN.

        Raises ConfigError when there are more than two classes.
        """
        if labels.ndim == 2:
            columns = enumerate(~np.isnan(labels).T)
            found = [_of(self.figure, outputs[known, column], labels[known, column] > 0.5) for column, known in columns]
            figures = [each for each in found if each is not None]
            return float(np.mean(figures)) if figures else float("nan")
        if (labels.size and labels.max() > 1) or (outputs.ndim == 2 and outputs.shape[1] != 2):
            raise ConfigError(f"metric {self.name!r} needs two classes or multi-label data; use accuracy or f1-micro")
        if outputs.ndim == 2:
            # The difference orders vertices as the probability does; rounded to float32, close ones would tie.
            outputs = outputs[:, 1].astype(np.float64) - outputs[:, 0]
        one = _of(self.figure, outputs[labels >= 0], labels[labels >= 0] == 1)
        return float("nan") if one is None else one


def _of(figure: Figure, scores: np.ndarray, positive: np.ndarray) -> float | None:
    """Return the figure; None when a class is missing."""
    if positive.all() or not positive.any():
        return None
    return float("nan") if np.isnan(scores).any() else figure(scores, positive)
