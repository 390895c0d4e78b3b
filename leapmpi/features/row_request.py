"""Which rows are wanted, and where they are."""

from __future__ import annotations

import numpy as np

from leapmpi.plan.homes import home_of


class RowRequest:
    """Distinct vertex ids grouped by where their rows are: at home here, in the cache, or to ask of whom.

    `slots` (int[k]) holds the place of each id in the cache, negative for none.
    """

    def __init__(self, ids: np.ndarray, rank_offsets: np.ndarray, rank: int, slots: np.ndarray | None = None) -> None:
        ranks = len(rank_offsets) - 1
        home = home_of(ids, rank_offsets).astype(np.uint16)
        if slots is not None:
            home[slots >= 0] = ranks  # sorted behind all others
        order = np.argsort(home, kind="stable")
        counts = np.bincount(home, minlength=ranks + 1).astype(np.int64)
        begin = int(counts[:rank].sum())
        end = begin + int(counts[rank])
        cached = len(ids) - int(counts[ranks])
        self.ids = ids
        self.own_positions = order[begin:end]
        self.own_ids = ids[self.own_positions]
        self.remote_positions = np.concatenate((order[:begin], order[end:cached]))
        self.remote_ids = ids[self.remote_positions]
        self.cached_positions = order[cached:]
        self.cached_slots = slots[self.cached_positions] if slots is not None else self.cached_positions
        counts[rank] = 0
        self.remote_counts = counts[:ranks]
