"""Feature columns in part files: beside its feature rows, a part may hold some feature columns of all vertices.

Part p of P holds the columns that rank p of P holds under strategy p3, in the order of the renumbered vertices.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.writer import NewFile, write_array
from leapmpi.dataset.row_blocks import row_ranges


def column_bounds(width: int, ranks: int) -> np.ndarray:
    """int64[ranks + 1]: rank r holds the columns bounds[r] to bounds[r + 1]; the numbers differ by at most one."""
    return np.arange(ranks + 1, dtype=np.int64) * width // ranks


def write_columns(file: NewFile, features: np.ndarray, old_of: np.ndarray, first: int, end: int) -> None:
    """Write columns `first` to `end` (exclusive) of `features` [n, F]; the row of v is old_of[v] (integers[n])."""

    def blocks() -> Iterator[np.ndarray]:
        # Whole rows are gathered: the size of a block counts all their columns.
        for start, stop in row_ranges(len(features), features.dtype.itemsize * features.shape[1]):
            yield np.asarray(features[old_of[start:stop], first:end])

    dtype = np.dtype(features.dtype).newbyteorder("<").str
    write_array(file, names.COLUMNS, (len(features), end - first), dtype, blocks())
