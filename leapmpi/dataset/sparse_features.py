"""Sparse features: the non-zero entries of each row, in compressed sparse rows (CSR), as stored in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from leapmpi.dataset.hdf5 import names
from leapmpi.system.jit import compiled

INDEX_BYTES = 4
"""Bytes of an entry's column."""


@compiled
def _entries_of(indptr, rows, bounds, entries):
    """Write the positions of the entries of `rows`; those of rows[i] go to entries[bounds[i]] ... ."""
    for i in range(len(rows)):
        first = indptr[rows[i]]
        for k in range(bounds[i + 1] - bounds[i]):
            entries[bounds[i] + k] = first + k


@compiled
def _within(indptr, indices, data, first, end, out_indptr, columns, values):
    """Copy the entries in columns `first` to `end` (exclusive), as columns from 0; return their number."""
    kept = 0
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            if first <= indices[e] < end:
                columns[kept] = indices[e] - first
                values[kept] = data[e]
                kept += 1
        out_indptr[i + 1] = kept
    return kept


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """Features [n, width]; the entries of row v are the elements indptr[v] to indptr[v + 1] (exclusive).

    indptr: int64[n + 1], from 0 on; indices: int32[entries], columns, strictly ascending in a row; data: float32 or
    float16 [entries], finite and not zero. Arrays may be mapped.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    width: int

    ndim = 2

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, zeros included."""
        return len(self.indptr) - 1, self.width

    @property
    def dtype(self) -> np.dtype:
        """Type of the entries."""
        return self.data.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.indptr.nbytes + self.indices.nbytes + self.data.nbytes

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry: of its column and its value."""
        return INDEX_BYTES + self.data.itemsize

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, rows: slice | np.ndarray) -> SparseFeatures:
        """Return the rows `rows`: a slice gives views, row numbers int64[k] give copies."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            bounds = np.asarray(self.indptr[start : stop + 1])
            low, high = int(bounds[0]), int(bounds[-1])
            return SparseFeatures(bounds - low, self.indices[low:high], self.data[low:high], self.width)

        # Positions of all entries first, then one gather of each array.
        bounds = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(self.counts(rows), out=bounds[1:])
        entries = np.empty(int(bounds[-1]), np.int64)
        _entries_of(np.asarray(self.indptr), rows, bounds, entries)
        return SparseFeatures(bounds, self.indices[entries], self.data[entries], self.width)

    def counts(self, rows: np.ndarray) -> np.ndarray:
        """Return the number of entries of each of `rows` int64[k]: int64[k]."""
        return self.indptr[rows + 1] - self.indptr[rows]

    def columns(self, first: int, end: int) -> SparseFeatures:
        """Return columns `first` to `end` (exclusive) of all rows, numbered from 0; a copy in memory."""
        size = len(self.indices)
        indptr = np.zeros(len(self) + 1, np.int64)
        columns = np.empty(size, np.int32)
        # Values are copied as integers: numba knows no half precision.
        bits = np.empty(size, f"u{self.data.itemsize}")
        source = np.asarray(self.data).view(bits.dtype)
        kept = _within(np.asarray(self.indptr), np.asarray(self.indices), source, first, end, indptr, columns, bits)
        return SparseFeatures(indptr, columns[:kept].copy(), bits[:kept].copy().view(self.dtype), end - first)

    def dense(self) -> np.ndarray:
        """Return all rows [n, width] in the type of the values, zeros included."""
        out = np.zeros(self.shape, self.dtype)
        out[np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.indices] = self.data
        return out


Features = np.ndarray | SparseFeatures
"""Features [n, F] as a graph or a part holds them."""


def from_entries(row: np.ndarray, column: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> SparseFeatures:
    """Return the features with `values` [k] at `row`, `column` (integers[k], ascending by row, then by column)."""
    indptr = np.zeros(shape[0] + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=shape[0]), out=indptr[1:])
    return SparseFeatures(indptr, column.astype(np.int32), np.ascontiguousarray(values), shape[1])


def joined(blocks: list[SparseFeatures]) -> SparseFeatures:
    """Concatenate the rows of all `blocks` (at least one, all of one width)."""
    ends = np.cumsum([0, *(len(block.indices) for block in blocks)])
    bounds = [np.zeros(1, np.int64), *(end + block.indptr[1:] for end, block in zip(ends, blocks, strict=False))]
    return SparseFeatures(
        np.concatenate(bounds),
        np.concatenate([block.indices for block in blocks]),
        np.concatenate([block.data for block in blocks]),
        blocks[0].width,
    )


def arrays_of(features: Features | None) -> Mapping[str, np.ndarray]:
    """Return the arrays of `features` by their names in files; empty without features."""
    if features is None:
        return {}
    if not isinstance(features, SparseFeatures):
        return {names.FEATURES: features}
    return {
        names.FEATURE_INDPTR: features.indptr,
        names.FEATURE_INDICES: features.indices,
        names.FEATURE_DATA: features.data,
    }


def row_bytes(features: Features) -> int:
    """Return the bytes of a row, rounded up from the mean if rows differ."""
    return -(-features.nbytes // max(1, len(features)))
