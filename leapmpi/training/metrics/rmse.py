"""The root of the mean squared error of each target, then the mean over targets."""

from __future__ import annotations

from leapmpi.training.scoring.metric import MomentMetric


class Rmse(MomentMetric):
    """One of the errors of leapmpi/training/scoring/moments.py."""

    figure = "rmse"
    higher_is_better = False


METRIC = Rmse
