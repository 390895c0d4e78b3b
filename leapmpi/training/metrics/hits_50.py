"""Hits@50: the share of the edges that rank among the first 50 of their candidates."""

from __future__ import annotations

from leapmpi.training.edges.edge_ranks import Hits


class Hits50(Hits):
    """Ranks up to 50."""

    most = 50


METRIC = Hits50
