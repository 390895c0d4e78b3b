"""R2, the share of the variance that is predicted, 1 - mse / variance; the mean over targets that vary."""

from __future__ import annotations

from leapmpi.training.scoring.metric import MomentMetric


class R2(MomentMetric):
    """One of the errors of leapmpi/training/scoring/moments.py."""

    figure = "r2"
    higher_is_better = True


METRIC = R2
