"""The mean squared error over vertices, then over targets."""

from __future__ import annotations

from leapmpi.training.scoring.metric import MomentMetric


class Mse(MomentMetric):
    """One of the errors of leapmpi/training/scoring/moments.py."""

    figure = "mse"
    higher_is_better = False


METRIC = Mse
