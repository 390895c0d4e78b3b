"""Hits@100: the share of the edges that rank among the first 100 of their candidates."""

from __future__ import annotations

from leapmpi.training.edges.edge_ranks import Hits


class Hits100(Hits):
    """Ranks up to 100."""

    most = 100


METRIC = Hits100
