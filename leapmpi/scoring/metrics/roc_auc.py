"""The area under the ROC curve, exact, from average ranks on ties (Mann-Whitney); the mean over labels."""

from __future__ import annotations

from functools import partial

import numpy as np

from leapmpi.scoring.metric import MetricMember
from leapmpi.scoring.ranking import RankingMetric


def _area(scores: np.ndarray, positive: np.ndarray) -> float:
    positives = int(np.count_nonzero(positive))
    _, group, size = np.unique(scores, return_inverse=True, return_counts=True)
    twice_rank = 2 * np.cumsum(size) - size + 1  # of each group of ties, counted from 1
    twice_wins = int(twice_rank[group[positive]].sum()) - positives * (positives + 1)
    return twice_wins / (2 * positives * (len(positive) - positives))


MEMBER = MetricMember(partial(RankingMetric, _area))
