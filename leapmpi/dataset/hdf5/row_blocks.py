"""Blocks of rows of bounded size, so that mapped arrays may be larger than memory."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import numpy as np

BLOCK_BYTES = 16 * 2**20
"""Default size of a block."""


def row_blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield views of `array` by blocks of rows of about `BLOCK_BYTES`."""
    for start, stop in row_ranges(len(array), array.nbytes // max(1, len(array))):
        yield array[start:stop]


def row_ranges(rows: int, row_bytes: int, block_bytes: int | None = None) -> Iterator[tuple[int, int]]:
    """Cut `rows` rows of `row_bytes` bytes into ranges (start, stop) of about `block_bytes` (`BLOCK_BYTES`)."""
    step = max(1, (block_bytes or BLOCK_BYTES) // max(1, row_bytes))
    for start in range(0, rows, step):
        yield start, min(rows, start + step)


def row_groups(indptr: np.ndarray, row_bytes: int, entry_bytes: int, limit: int) -> Iterator[tuple[int, int]]:
    """Cut CSR rows into ranges (start, stop) of about `limit` bytes, at least one row each.

    indptr: int64[rows + 1], ascending. A row takes `row_bytes`, and `entry_bytes` for each of its entries.
    """
    rows = len(indptr) - 1
    start = 0

    def size(row: int) -> int:  # bytes of all rows before it
        return row * row_bytes + int(indptr[row]) * entry_bytes

    while start < rows:
        # The last range end within the limit, found by bisection: `indptr` may be mapped and is not read whole.
        beyond = bisect.bisect_right(range(rows + 1), size(start) + limit, start + 1, key=size)
        stop = max(start + 1, beyond - 1)
        yield start, stop
        start = stop
