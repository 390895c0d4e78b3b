"""Traffic of an iteration: bytes by kind and pair of ranks, and rows read by place."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import numpy as np

from leapmpi.comm.byte_counters import KINDS, ROWS


class Traffic:
    """Traffic of one iteration.

    `sent[kind]` int64[ranks, ranks]: payload bytes from rank (row) to rank (column). `rows[place]` int64[ranks]: rows
    read by each rank. Kinds and places are those of leapmpi/comm/byte_counters.py.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.sent: dict[str, np.ndarray] = defaultdict(partial(np.zeros, (ranks, ranks), np.int64))
        self.rows = {place: np.zeros(ranks, np.int64) for place in ROWS}

    def add(self, other: Traffic) -> None:
        """Add the traffic `other` of as many ranks."""
        for kind, pairs in other.sent.items():
            self.sent[kind] += pairs
        for place, rows in other.rows.items():
            self.rows[place] += rows

    def bytes_by_kind(self) -> dict[str, int]:
        """Return the bytes over all pairs of ranks."""
        return {kind: int(self.sent[kind].sum()) if kind in self.sent else 0 for kind in KINDS}

    def rows_by_place(self) -> dict[str, int]:
        """Return the rows over all ranks."""
        return {place: int(rows.sum()) for place, rows in self.rows.items()}

    def pairs(self) -> np.ndarray:
        """Return the bytes of all kinds between ranks: int64[ranks, ranks]."""
        return sum(self.sent.values(), np.zeros((self.ranks, self.ranks), np.int64))
