"""Arrays by blocks of rows of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK_BYTES = 16 * 2**20


def row_blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Views of `array` by blocks of rows of about `BLOCK_BYTES`."""
    for start, stop in row_ranges(len(array), array.nbytes // max(1, len(array))):
        yield array[start:stop]


def row_ranges(rows: int, row_bytes: int, block_bytes: int | None = None) -> Iterator[tuple[int, int]]:
    """Cut `rows` rows of `row_bytes` bytes into ranges (start, stop) of about `block_bytes` (`BLOCK_BYTES`)."""
    step = max(1, (block_bytes or BLOCK_BYTES) // max(1, row_bytes))
    for start in range(0, rows, step):
        yield start, min(rows, start + step)
