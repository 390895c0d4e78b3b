"""Metrics of edges, each a mean over edges of a figure of one: its rank, or the share of negatives that score below."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from leapmpi.scoring.metric import METRICS, Metric, metric_named

EDGES = "edges"
RANK, ABOVE = 0, 1
"""Columns of the outputs of edges: the rank among the candidates, from 1, the mean over ties; and the share of the
negatives of all edges that score below the edge, where ties count half."""


class EdgeMetric(Metric):
    """The mean of `of_edges`; labels are not read."""

    scores = (EDGES,)
    trivial = "all pairs alike"

    @abstractmethod
    def of_edges(self, outputs: np.ndarray) -> np.ndarray:
        """Compute the figure of each edge, from outputs float64[k, 2] (RANK, ABOVE). Pure."""

    def score(self, outputs: np.ndarray, labels: np.ndarray) -> float:
        """Return the mean; NaN without edges."""
        return float(self.of_edges(outputs).mean()) if len(outputs) else float("nan")


def all_figures(outputs: np.ndarray) -> dict[str, float]:
    """Compute every metric of edges by name, for outputs float64[k, 2] of at least one edge."""
    found = (metric_named(name) for name in METRICS.names())
    return {each.name: each.score(outputs, np.empty(0)) for each in found if isinstance(each, EdgeMetric)}
