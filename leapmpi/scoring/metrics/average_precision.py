"""Average precision: the sum over recall steps of step x precision, exact, ties as one step; the mean over labels.

Columns without a positive or a negative do not count.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from leapmpi.scoring.metric import MetricMember
from leapmpi.scoring.ranking import RankingMetric


def _precision(scores: np.ndarray, positive: np.ndarray) -> float:
    # Groups of equal scores, the highest first.
    _, group = np.unique(-scores, return_inverse=True)
    found = np.bincount(group, weights=positive)
    taken, right = np.cumsum(np.bincount(group)), np.cumsum(found)
    return float((found * right / taken).sum() / right[-1])


MEMBER = MetricMember(partial(RankingMetric, _precision))
