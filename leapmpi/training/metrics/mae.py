"""The mean absolute error over vertices, then over targets."""

from __future__ import annotations

from leapmpi.training.scoring.metric import MomentMetric


class Mae(MomentMetric):
    """One of the errors of leapmpi/training/scoring/moments.py."""

    figure = "mae"
    higher_is_better = False


METRIC = Mae
