"""Hits@10: the share of the edges that rank among the first 10 of their candidates."""

from __future__ import annotations

from leapmpi.training.edges.edge_ranks import Hits


class Hits10(Hits):
    """Ranks up to 10."""

    most = 10


METRIC = Hits10
