"""Feature rows that stay in the files of the dataset, the most read ones also in memory (`--feature-memory`).

A row in memory is read there; of the others the system reads the requested pages. All pages of a request are announced
at once, so that a disk can serve many. The system may evict pages of files, so they limit no rank.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.dataset.hdf5.row_blocks import row_ranges
from leapmpi.dataset.partitioned import Dataset, Part
from leapmpi.errors import ConfigError, counted
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.runs.text import size_text
from leapmpi.system.page_advice import NO_LONGER, ONE_BY_ONE, SOON, advise, announce

_SLOT_BYTES = 4
"""Of the table that tells which rows are in memory: bytes for each row of the shard."""


def check_feature_memory(config: Config, dataset: Dataset) -> None:
    """Raise ConfigError where `--feature-memory` is given and cannot act on the rows of `dataset`."""
    if config.strategy.feature_memory and dataset.sparse:
        raise ConfigError("strategy.feature_memory: sparse rows are not kept apart; leave it out, or import them dense")


def dense_shard(parts: Sequence[Part], first: int, room: int | None) -> HostShard:
    """Build the shard of dense features of `parts` from vertex `first` on. Nothing is read.

    room: bytes of `--feature-memory`, None without. Raises ConfigError where they are too few.
    """
    rows, scale = [part.dense_features for part in parts], parts[0].feature_scale
    return HostShard(rows, first, scale) if room is None else MappedShard(rows, first, scale, room)


def table_bytes(rows: int) -> int:
    """Return the bytes of the table that tells which of `rows` rows are in memory."""
    return rows * _SLOT_BYTES


def capacity(rows: int, row_bytes: int, room: int) -> int:
    """Return how many of `rows` rows fit in `room` bytes. Raises ConfigError where not even their table does."""
    table = table_bytes(rows)
    if room < table:
        raise ConfigError(
            f"strategy.feature_memory: {size_text(room)} is less than the table of {counted(rows, 'row')} takes, "
            f"{size_text(table)}; give at least that, and what rows in memory shall take"
        )
    return min(rows, (room - table) // max(1, row_bytes))


def bytes_apart(rows: int, row_bytes: int, room: int) -> tuple[int, int]:
    """Split the bytes of `rows` rows with `room` bytes: in memory, table included, and in files."""
    held = capacity(rows, row_bytes, room)
    return table_bytes(rows) + held * row_bytes, (rows - held) * row_bytes


class MappedShard(HostShard):
    """HostShard of mapped `parts`; `keep` holds rows in memory, as many as fit in `room` bytes.

    The room has a table of 4 bytes a row, too. Raises ConfigError where it is smaller than that.
    """

    def __init__(self, parts: Sequence[np.ndarray], first: int, scale: np.ndarray | None, room: int) -> None:
        super().__init__(parts, first, scale)
        self._room = room
        self.capacity = capacity(len(self), self.row_bytes, room)
        """Rows that fit in memory."""
        self._slot: np.ndarray | None = None
        self._kept = np.empty((0, self.width), self.dtype)
        self._counts, self._lock = [0, 0], threading.Lock()

    @property
    def resident_bytes(self) -> int:
        """Bytes of the rows that fit in memory, and of the table."""
        return bytes_apart(len(self), self.row_bytes, self._room)[0]

    def __len__(self) -> int:
        return int(self.bounds[-1] - self.bounds[0])

    @property
    def in_place(self) -> bool:
        """No: rows are in memory and in files."""
        return False

    def keep(self, ids: np.ndarray) -> None:
        """Read the rows of `ids` (int64[k], ascending, distinct, at most `capacity`) into memory."""
        # Without the table rows are read from files; this read is none of training's, so counts are restored.
        self._slot, counts = None, list(self._counts)
        kept = np.empty((len(ids), self.width), self.dtype)
        for begin, end in row_ranges(len(ids), self.row_bytes):
            super().place(ids[begin:end], kept, np.arange(begin, end))
        slot = np.full(len(self), -1, np.int32)
        slot[ids - self.bounds[0]] = np.arange(len(ids), dtype=np.int32)
        self._kept, self._slot, self._counts = kept, slot, counts
        for part in self.parts:
            # Reads of single rows: reading ahead would load pages that nobody needs.
            advise(part, ONE_BY_ONE)
            if isinstance(part, np.memmap):
                # What was read of the file to copy it is the system's again; plain memory would be lost.
                advise(part, NO_LONGER)

    def split(self, ids: np.ndarray) -> Iterator[tuple[Any, int, np.ndarray, np.ndarray]]:
        """Split as HostShard does; rows in memory are one part more, numbered from 0.

        Announces the pages of the others.
        """
        if self._slot is None:
            yield from super().split(ids)
            return
        slots = self._slot[ids - self.bounds[0]]
        held, away = np.flatnonzero(slots >= 0), np.flatnonzero(slots < 0)
        with self._lock:
            self._counts = [self._counts[0] + len(held), self._counts[1] + len(away)]
        yield self._kept, 0, slots[held].astype(np.int64), held

        # The pages of all parts are announced before a row of one is read.
        found = list(super().split(ids[away])) if len(away) else []
        row_size = np.array([self.row_bytes])
        for part, first, chosen, _ in found:
            announce(part.ctypes.data + self.row_bytes * np.sort(chosen - first), row_size, SOON)
        for part, first, chosen, positions in found:
            yield part, first, chosen, away[positions]

    def locate(self, ids: np.ndarray, addresses: np.ndarray, positions: np.ndarray) -> None:
        """Locate as HostShard does; announce the pages of rows in files."""
        for part, first, chosen, where in self.split(ids):
            addresses[positions[where]] = part.ctypes.data + self.row_bytes * (chosen - first)

    def take_counts(self) -> tuple[int, int]:
        """Return the rows read in memory, and in files, since the last call."""
        with self._lock:
            (held, away), self._counts = self._counts, [0, 0]
        return held, away
