"""Memory for rows that training writes: the process's own, or unnamed files, whose mapped part is bounded.

The system may evict pages of files, so rows need no more memory than is given for them (`--feature-memory`).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.config.setting import parse_size
from leapmpi.dataset.hdf5.row_blocks import row_ranges
from leapmpi.system.page_advice import ONE_BY_ONE, PAGE, advise, write_back
from leapmpi.system.unnamed_files import mapped_file


class RowMemory:
    """Arrays of rows in memory, or in files if `room`, the bytes of them that may stay mapped, is given."""

    def __init__(self, room: int | None = None) -> None:
        self.room = room
        self._files: list[weakref.ref[np.ndarray]] = []
        self._touched = 0

    def zeros(self, shape: Sequence[int], dtype: np.dtype | str) -> np.ndarray:
        """Allocate zeros. Raises ConfigError or ResourceError where temporary files have no room on a disk."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if self.room is None or not size:
            return np.zeros(shape, dtype)
        found = np.frombuffer(mapped_file(size, "learned rows take"), dtype).reshape(shape)
        # Reads of single rows: reading ahead would load pages that nobody needs.
        advise(found, ONE_BY_ONE)
        self._files.append(weakref.ref(found))
        return found

    def touch(self, rows: int, row_bytes: int) -> None:
        """Take note that so many rows of `row_bytes` bytes were written; give pages back where room is short."""
        if self.room is None:
            return
        self._touched += rows * max(PAGE, row_bytes)
        if self._touched > self.room:
            self._write_back()

    def copy(self, target: np.ndarray, here: np.ndarray, source: np.ndarray, there: np.ndarray) -> None:
        """Copy the rows `there` of `source` to the rows `here` (int64[k] both) of `target`."""
        row_bytes = source.nbytes // max(1, len(source))
        for begin, end in row_ranges(len(here), row_bytes):
            target[here[begin:end]] = source[there[begin:end]]
            self.touch(end - begin, row_bytes)

    def _write_back(self) -> None:
        self._touched, alive = 0, []
        for each in self._files:
            if (array := each()) is not None:
                write_back(array)
                alive.append(each)
        self._files = alive


def room_of(config: Config) -> int | None:
    """Return the bytes of learned rows that `config` lets stay in memory; None for all. Raises ConfigError."""
    size = config.strategy.feature_memory
    return parse_size(size, "strategy.feature_memory") if size else None


def held_bytes(size: int, room: int | None) -> int:
    """Return how many of `size` bytes of rows are in memory at most."""
    return size if room is None else min(size, room)
