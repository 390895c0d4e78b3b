"""Requested rows by location: on this rank, in its cache of remote rows, or on another rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from leapmpi.plan.homes import home_of

if TYPE_CHECKING:
    import torch

    from leapmpi.dataset.sparse_features import SparseFeatures


class RequestedRows(Protocol):
    """Rows of a request that are local and remote, with their positions in it; fields as in RowRequest."""

    @property
    def local_ids(self) -> np.ndarray: ...
    @property
    def local_positions(self) -> np.ndarray: ...
    @property
    def remote_positions(self) -> np.ndarray: ...
    @property
    def remote_counts(self) -> np.ndarray: ...


class RowCache:
    """The rows of `ids` (int64[k], distinct, none of them local), of a graph of `vertices` vertices.

    `rows`, which FeatureFetcher.fill sets, are of the stored type and in the memory where the shard is.
    """

    rows: np.ndarray | torch.Tensor | SparseFeatures

    def __init__(self, ids: np.ndarray, vertices: int) -> None:
        self.ids = np.sort(ids)
        self._slot = np.full(vertices, -1, np.int32)
        self._slot[self.ids] = np.arange(len(self.ids), dtype=np.int32)

    def slots(self, ids: np.ndarray) -> np.ndarray:
        """Return the slot of each of `ids` (int64[k]) in `rows`: int32[k], -1 for one that is not cached."""
        return self._slot[ids]

    def held_bytes(self, row_bytes: int) -> int:
        """Return the bytes of rows of `row_bytes` each, and of the lookup table."""
        return self._slot.nbytes + len(self.ids) * row_bytes


class RowRequest:
    """Distinct vertex ids grouped by where their rows are: on this rank, in the cache, or on which other rank.

    `ids` int64[k]; `rank_offsets` int64[ranks + 1]; `slots` int[k]: the slot of each id in the cache, negative where
    there is none.

    Each of the three groups has its positions in `ids`. Local rows have `local_ids`; remote rows have `remote_ids`,
    sorted by owner, and `remote_counts` int64[ranks]; cached rows have `cached_slots`.
    """

    def __init__(self, ids: np.ndarray, rank_offsets: np.ndarray, rank: int, slots: np.ndarray | None = None) -> None:
        ranks = len(rank_offsets) - 1

        # Sort stably by owner; cached rows come last, as if one more rank owned them.
        if ranks == 1 and slots is None:
            order, counts = np.arange(len(ids)), np.array([len(ids), 0])
        else:
            home = home_of(ids, rank_offsets).astype(np.uint16)
            if slots is not None:
                home[slots >= 0] = ranks
            order = np.argsort(home, kind="stable")
            counts = np.bincount(home, minlength=ranks + 1).astype(np.int64)
        begin = int(counts[:rank].sum())
        end = begin + int(counts[rank])
        cached = len(ids) - int(counts[ranks])

        # Local rows are at [begin, end) of that order, cached ones from `cached` on; the others are remote.
        self.ids = ids
        self.local_positions = order[begin:end]
        # Where all are local they are in order.
        self.local_ids = ids if end - begin == len(ids) else ids[self.local_positions]
        self.remote_positions = np.concatenate((order[:begin], order[end:cached]))
        self.remote_ids = ids[self.remote_positions]
        self.cached_positions = order[cached:]
        self.cached_slots = slots[self.cached_positions] if slots is not None else self.cached_positions
        counts[rank] = 0
        self.remote_counts = counts[:ranks]

    @property
    def read_counts(self) -> dict[str, int]:
        """Number of rows read in each of the three groups, as they are counted."""
        return {"local": len(self.local_ids), "remote": len(self.remote_ids), "cached": len(self.cached_slots)}
