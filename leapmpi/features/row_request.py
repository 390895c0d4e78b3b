"""Which rows are requested, and where they are."""

from __future__ import annotations

import numpy as np

from leapmpi.plan.homes import home_of


class RowRequest:
    """Distinct vertex ids grouped by where their rows are: on this rank, in the cache, or on which other rank.

    `ids` int64[k]; `rank_offsets` int64[ranks + 1]; `slots` int[k]: the slot of each id in the cache, negative where
    there is none.

    Each of the three groups has its positions in `ids`. Local rows have `own_ids`; remote rows have `remote_ids`,
    sorted by home rank, and `remote_counts` int64[ranks]; cached rows have `cached_slots`.
    """

    def __init__(self, ids: np.ndarray, rank_offsets: np.ndarray, rank: int, slots: np.ndarray | None = None) -> None:
        ranks = len(rank_offsets) - 1

        # Sort stably by home rank; cached rows come last, as if at home on one rank more.
        home = home_of(ids, rank_offsets).astype(np.uint16)
        if slots is not None:
            home[slots >= 0] = ranks
        order = np.argsort(home, kind="stable")
        counts = np.bincount(home, minlength=ranks + 1).astype(np.int64)
        begin = int(counts[:rank].sum())
        end = begin + int(counts[rank])
        cached = len(ids) - int(counts[ranks])

        # Local rows lie at [begin, end) of that order, cached ones from `cached` on; the others are remote.
        self.ids = ids
        self.local_positions = order[begin:end]
        self.local_ids = ids[self.local_positions]
        self.remote_positions = np.concatenate((order[:begin], order[end:cached]))
        self.remote_ids = ids[self.remote_positions]
        self.cached_positions = order[cached:]
        self.cached_slots = slots[self.cached_positions] if slots is not None else self.cached_positions
        counts[rank] = 0
        self.remote_counts = counts[:ranks]
