"""Figures of ranked edges: mean reciprocal rank, hits, and the area under the ROC curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

HITS = (1, 10, 50, 100)


@dataclass(frozen=True, eq=False)
class EdgeRanks:
    """What is known of each edge: its rank among its candidates, and the share of all negatives that score below it.

    rank: float64[k], counted from 1, the mean over ties; above: float64[k], of equal scores half.
    """

    rank: np.ndarray
    above: np.ndarray


def figures(ranks: EdgeRanks) -> dict[str, float]:
    """All figures by name, each a mean over edges."""
    found = {"mrr": float((1 / ranks.rank).mean()), "auc": float(ranks.above.mean())}
    return found | {f"hits-{k}": float((ranks.rank <= k).mean()) for k in HITS}
