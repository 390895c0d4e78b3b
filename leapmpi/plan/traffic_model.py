"""Traffic of an iteration: bytes by kind and pair of ranks, and rows read by place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from leapmpi.comm.byte_counters import KINDS, ROWS

MOST_PAIRED = 512
"""Bytes are kept by pair of ranks up to so many ranks: their matrix grows with the ranks squared."""


class Traffic:
    """Traffic of one iteration.

    `sent[kind]` and `received[kind]` int64[ranks]: payload bytes by sender and by receiver. `pairs` int64[ranks,
    ranks]: bytes of all kinds from rank (row) to rank (column); None for more ranks than MOST_PAIRED. `rows[place]`
    int64[ranks]: rows read by each rank. Kinds and places are those of leapmpi/comm/byte_counters.py.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.sent: dict[str, np.ndarray] = defaultdict(partial(np.zeros, ranks, np.int64))
        self.received: dict[str, np.ndarray] = defaultdict(partial(np.zeros, ranks, np.int64))
        self.pairs = np.zeros((ranks, ranks), np.int64) if ranks <= MOST_PAIRED else None
        self.rows = {place: np.zeros(ranks, np.int64) for place in ROWS}

    def add(self, other: Traffic) -> None:
        """Add the traffic `other` of as many ranks."""
        for mine, theirs in ((self.sent, other.sent), (self.received, other.received)):
            for kind, sizes in theirs.items():
                mine[kind] += sizes
        if self.pairs is not None and other.pairs is not None:
            self.pairs += other.pairs
        for place, rows in other.rows.items():
            self.rows[place] += rows

    def bytes_by_kind(self) -> dict[str, int]:
        """Return the bytes over all pairs of ranks."""
        return {kind: int(self.sent[kind].sum()) if kind in self.sent else 0 for kind in KINDS}

    def rows_by_place(self) -> dict[str, int]:
        """Return the rows over all ranks."""
        return {place: int(rows.sum()) for place, rows in self.rows.items()}

    def add_sent(self, kind: str, rank: int, by_rank: np.ndarray) -> None:
        """Add bytes of `kind` that `rank` sends to each rank, int64[ranks]; those to itself do not count."""
        self.sent[kind][rank] += int(by_rank.sum()) - int(by_rank[rank])
        self.received[kind] += by_rank
        self.received[kind][rank] -= by_rank[rank]
        if self.pairs is not None:
            self.pairs[rank] += by_rank
            self.pairs[rank, rank] = 0

    def busiest(self, kinds: Iterable[str]) -> int:
        """Return the most bytes of all `kinds` that a rank sends or receives."""
        kinds = list(kinds)
        both = (sum((of[kind] for kind in kinds), np.zeros(self.ranks, np.int64)) for of in (self.sent, self.received))
        return max(int(each.max()) for each in both)


def mean_pairs(traffic: Sequence[Traffic]) -> np.ndarray | None:
    """Return the mean of `traffic` between ranks, float64[ranks, ranks]; None for more ranks than MOST_PAIRED."""
    pairs = [each.pairs for each in traffic if each.pairs is not None]
    return np.mean(pairs, axis=0) if pairs else None
