"""Features by columns in the files of parts: beside its rows, a part may hold some columns of all vertices.

Part p of P holds the columns that rank p of P has under strategy p3, in the order of the renumbered vertices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.writer import NewFile, write_array
from leapmpi.dataset.row_blocks import row_ranges
from leapmpi.errors import DataError


def column_bounds(width: int, ranks: int) -> np.ndarray:
    """Where the columns of each rank start: int64[ranks + 1]; shares differ by one column at most."""
    return np.arange(ranks + 1, dtype=np.int64) * width // ranks


def write_columns(file: NewFile, features: np.ndarray, old_of: np.ndarray, first: int, end: int) -> None:
    """Write columns `first` to `end` (exclusive) of `features` [n, F], row old_of[v] (integers[n]) as that of v."""

    def blocks() -> Iterator[np.ndarray]:
        # The rows of a block are gathered whole.
        for start, stop in row_ranges(len(features), features.dtype.itemsize * features.shape[1]):
            yield np.asarray(features[old_of[start:stop], first:end])

    dtype = np.dtype(features.dtype).newbyteorder("<").str
    write_array(file, names.COLUMNS, (len(features), end - first), dtype, blocks())


def verify_columns(part, parts: Callable[[int], object], offsets: np.ndarray) -> None:
    """Compare the columns that `part` holds with the rows of all parts, `parts(p)` for part p.

    Raises DataError naming file, vertex and column of the first difference.
    """
    first, end = column_bounds(part.features.shape[1], len(offsets) - 1)[part.number : part.number + 2]
    for number, begin in enumerate(offsets[:-1]):
        rows = parts(number).features
        for start, stop in row_ranges(len(rows), rows.strides[0]):
            differs = rows[start:stop, first:end] != part.columns[begin + start : begin + stop]
            if differs.any():
                row, column = np.argwhere(differs)[0]
                raise DataError(
                    f"{part.path}: {names.COLUMNS} of vertex {begin + start + row}, column {first + column}, is not "
                    f"what {names.FEATURES} of part {number} holds; partition again"
                )
