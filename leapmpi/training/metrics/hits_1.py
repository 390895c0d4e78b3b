"""Hits@1: the share of the edges that rank among the first 1 of their candidates."""

from __future__ import annotations

from leapmpi.training.edges.edge_ranks import Hits


class Hits1(Hits):
    """Ranks up to 1."""

    most = 1


METRIC = Hits1
