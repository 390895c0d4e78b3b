"""Memory for rows that training writes: the process's own, or unnamed files.

The system may evict pages of files that were written to the disk. So rows need no more memory than is given for changes
(`--feature-memory`), and more makes them faster.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.config.setting import parse_size
from leapmpi.dataset.hdf5.row_blocks import row_ranges
from leapmpi.system.page_advice import IN_ORDER, ONE_BY_ONE, PAGE, SOON, advise, announce, write_back
from leapmpi.system.unnamed_files import mapped_file


class RowMemory:
    """Arrays of rows in memory, or in files if `room`, the bytes of pages that may wait to be written, is given."""

    def __init__(self, room: int | None = None) -> None:
        self.room = room
        self._files: list[weakref.ref[np.ndarray]] = []
        self._touched = 0
        self._advice = IN_ORDER

    def zeros(self, shape: Sequence[int], dtype: np.dtype | str) -> np.ndarray:
        """Allocate zeros. Raises ConfigError or ResourceError where temporary files have no room on a disk."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if self.room is None or not size:
            return np.zeros(shape, dtype)
        # The whole is the base of all views, and is there as long as one of them.
        whole = np.frombuffer(mapped_file(size, "learned rows take"), dtype)
        advise(whole, self._advice)
        self._files.append(weakref.ref(whole))
        return whole.reshape(shape)

    def tables(self, count: int, rows: int, width: int, dtype: np.dtype | str) -> list[np.ndarray]:
        """Allocate `count` tables of zeros (rows, width) whose rows are used together, in files side by side."""
        if self.room is None:
            return [np.zeros((rows, width), dtype) for _ in range(count)]
        whole = self.zeros((rows, count, width), dtype)
        return [whole[:, number] for number in range(count)]

    def announce(self, table: np.ndarray, rows: np.ndarray) -> None:
        """Let the system read the `rows` (int64[k]) of `table` and what is beside them, many at once, and no others."""
        if self.room is not None and len(rows):
            self._advise(ONE_BY_ONE)
            stride = table.strides[0]
            announce(table.ctypes.data + stride * np.sort(rows), np.array([stride]), SOON)

    def read_in_order(self) -> None:
        """Let the system read ahead of whoever reads whole arrays now, until the next `announce`."""
        self._advise(IN_ORDER)

    def _advise(self, advice: int) -> None:
        if advice != self._advice:
            for each in self._alive():
                advise(each, advice)
        self._advice = advice

    def held_bytes(self, size: int) -> int:
        """Return how many of `size` bytes of rows are in memory at most."""
        return size if self.room is None else min(size, self.room)

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
        self._touched = 0
        for each in self._alive():
            write_back(each)

    def _alive(self) -> list[np.ndarray]:
        """Return the arrays in files that somebody still uses."""
        found = [(each, array) for each in self._files if (array := each()) is not None]
        self._files = [each for each, _ in found]
        return [array for _, array in found]


def room_of(config: Config) -> int | None:
    """Return the bytes of `--feature-memory` for the rows of a rank; None without a limit. Raises ConfigError."""
    size = config.strategy.feature_memory
    return parse_size(size, "strategy.feature_memory") if size else None
