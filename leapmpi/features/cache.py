"""Copies of rows that are at home elsewhere, chosen once and kept: what is in the cache need not cross ranks again."""

from __future__ import annotations

from typing import Any

import numpy as np

from leapmpi.features.shard import DeviceShard, HostShard


class RowCache:
    """The rows of `ids` (int64[k], distinct, none at home here), of a graph of `vertices` vertices.

    `rows` are in the type they have at rest and where the shard is: numpy on the host, a tensor on a GPU.
    """

    def __init__(self, ids: np.ndarray, vertices: int) -> None:
        self.ids = np.sort(ids)
        self.rows: Any = None
        self._slot = np.full(vertices, -1, np.int32)
        self._slot[self.ids] = np.arange(len(self.ids), dtype=np.int32)

    def slots(self, ids: np.ndarray) -> np.ndarray:
        """Where the row of each of `ids` stands, int32; -1 where it is not here."""
        return self._slot[ids]

    def make_room(self, shard: HostShard | DeviceShard) -> None:
        """Make `rows`, unfilled, of the kind of `shard`'s."""
        shape = (len(self.ids), shard.width)
        on_device = isinstance(shard, DeviceShard)
        self.rows = shard.values.new_empty(shape) if on_device else np.empty(shape, shard.dtype)

    def held_bytes(self, row_bytes: int) -> int:
        """Bytes of rows of `row_bytes` each, and of the table of their places."""
        return self._slot.nbytes + len(self.ids) * row_bytes
