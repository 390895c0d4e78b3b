"""Features in the form in which they are written, made from the source's rows on demand: no copy is held.

They are stored as dense rows, or as the entries that are not zero, whichever suits them.
"""

from __future__ import annotations

import numpy as np

from data_prep.edges.raw_graph import SparseRows
from data_prep.progress import SILENT, Progress
from data_prep.workspace import Workspace
from leapmpi.dataset.hdf5.row_blocks import BLOCK_BYTES, row_ranges
from leapmpi.dataset.sparse_features import SparseFeatures, from_entries
from leapmpi.errors import ConfigError, DataError

SPARSE_BELOW = 0.05
"""Share of entries that are not zero below which `auto` stores features sparse; measured, see README.md."""

_WIDTH_FROM = 64
"""Rows of fewer columns gain nothing by sparse storage."""

_SAMPLED_ROWS, _SAMPLED_BYTES = 1000, 2**26
_WIDEST = 2**31


class FeatureRows:
    """Features [n, F] of `dtype`: the rows `kept` int64[n] of a source (None: all), dense and finite.

    With `normalise` the absolute values of each row sum to 1.

    Slicing by rows gives an array, and raises DataError naming row and column of a value that is not a finite number.
    """

    ndim = 2

    def __init__(
        self, raw: np.ndarray | SparseRows, dtype: str, normalise: bool, where: str, kept: np.ndarray | None = None
    ) -> None:
        self._raw = raw
        self._normalise = normalise
        self._where = where
        self._kept = kept
        self.dtype = np.dtype(dtype)
        self.shape = (raw.shape[0] if kept is None else len(kept), raw.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def exact(self) -> FeatureRows:
        """Return the same rows as float32."""
        return FeatureRows(self._raw, "float32", self._normalise, self._where, self._kept)

    def among(self, kept: np.ndarray) -> FeatureRows:
        """Select the rows `kept` int64[k] of all rows of the source."""
        return FeatureRows(self._raw, self.dtype.str, self._normalise, self._where, kept)

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(len(self))
        chosen = slice(start, stop) if self._kept is None else self._kept[start:stop]
        with np.errstate(over="ignore"):  # what overflows becomes infinite and is found below
            if isinstance(self._raw, SparseRows):
                block = self._raw.taken(chosen).dense(self.dtype)
            else:
                block = np.ascontiguousarray(self._raw[chosen], self.dtype)
        finite = np.isfinite(block)
        if not finite.all():
            row, column = divmod(int(np.argmin(finite)), self.shape[1])
            raise self._fault(self._source_row(start + row), column, block[row, column])
        if not self._normalise:
            return block

        # In float32; rows of zeros stay.
        values = block.astype(np.float32, copy=False)
        total = np.abs(values).sum(axis=1, keepdims=True, dtype=np.float64)
        return (values / np.where(total == 0, 1, total)).astype(self.dtype)

    def _fault(self, row: int, column: int, value: np.generic) -> DataError:
        """Return the error for a `value` of the source that is not finite, or not as `dtype`."""
        if not isinstance(self._raw, SparseRows):
            value = self._raw[row, column]
        finite = f"finite as {self.dtype}" if np.isfinite(value) else "finite"
        return DataError(f"{self._where}: features, row {row}, column {column} is {value}; features must be {finite}")

    def _source_row(self, row: int) -> int:
        return row if self._kept is None else int(self._kept[row])

    @property
    def source_row_bytes(self) -> int:
        """Bytes of a row of the source, the mean where rows differ; at least those of a few numbers."""
        if isinstance(self._raw, SparseRows):
            return 32 + self._raw.indices.nbytes * 4 // max(1, self._raw.shape[0])
        return 4 * self.shape[1] * self.dtype.itemsize

    def density(self, sampled: int) -> float:
        """Share of the elements that are not zero, or that a sparse source names; dense ones by `sampled` rows."""
        size = max(1, self.shape[0] * self.shape[1])
        if isinstance(self._raw, SparseRows):
            entries = np.diff(self._raw.indptr)
            return int((entries if self._kept is None else entries[self._kept]).sum()) / size
        chosen = np.unique(np.linspace(0, len(self) - 1, sampled).astype(np.int64))
        rows = self._raw[chosen if self._kept is None else self._kept[chosen]]
        return np.count_nonzero(rows) / max(1, rows.size)

    def entries(self, rows: slice) -> SparseFeatures:
        """Return the non-zero entries of some consecutive rows; the same numbers and errors as by slicing."""
        if not isinstance(self._raw, SparseRows):
            block = self[rows]
            row, column = np.nonzero(block)
            return from_entries(row, column, block[row, column], block.shape)

        # The entries of a sparse source, those of the same place added up.
        start, stop, _ = rows.indices(len(self))
        chosen = slice(start, stop) if self._kept is None else self._kept[start:stop]
        taken = self._raw.taken(chosen)
        with np.errstate(over="ignore"):
            row, column, values = _summed(taken.row, taken.indices, taken.data.astype(self.dtype))

        # Name the first value that is not finite by its row in the source.
        finite = np.isfinite(values)
        if not finite.all():
            entry = int(np.argmin(finite))
            raise self._fault(self._source_row(start + row[entry]), int(column[entry]), values[entry])

        # Normalise as dense rows are, and drop what is zero.
        if self._normalise:
            values = values.astype(np.float32, copy=False)
            total = np.bincount(row, np.abs(values), taken.shape[0])
            values = (values / np.where(total == 0, 1, total)[row]).astype(self.dtype)
        nonzero = values != 0
        return from_entries(row[nonzero], column[nonzero], values[nonzero], taken.shape)


def _summed(row: np.ndarray, column: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum entries by row and column; those of the same place are added up in their order."""
    order = np.lexsort((column, row))
    row, column, values = row[order], column[order], values[order]
    first = np.flatnonzero(np.r_[True, (row[1:] != row[:-1]) | (column[1:] != column[:-1])][: len(row)])
    if len(first) < len(row):
        values = np.add.reduceat(values, first, dtype=values.dtype)
    return row[first], column[first], values


def suits_sparse(rows: FeatureRows) -> bool:
    """Decide whether few enough entries differ from zero for sparse storage to pay; dense sources are sampled."""
    sampled = max(1, min(_SAMPLED_ROWS, _SAMPLED_BYTES // rows.source_row_bytes))
    return rows.shape[1] >= _WIDTH_FROM and rows.density(sampled) < SPARSE_BELOW


def stored(
    rows: FeatureRows, storage: str, workspace: Workspace, progress: Progress = SILENT
) -> FeatureRows | SparseFeatures:
    """Return `rows` in stored form: dense rows, or sparse in temporary files of `workspace`.

    storage: auto, dense or sparse. Raises DataError for a value that is not a finite number, ConfigError for too many
    columns.
    """
    if storage == "dense" or (storage == "auto" and not suits_sparse(rows)):
        return rows
    if rows.shape[1] >= _WIDEST:
        raise ConfigError(
            f"--feature-storage: columns of sparse features are numbered in 31 bits, not {rows.shape[1]:,}"
        )

    # Entries in temporary files, written block by block.
    progress.start(len(rows), "rows of features")
    indptr = np.zeros(len(rows) + 1, np.int64)
    columns, values = workspace.path("feature-columns"), workspace.path("feature-values")
    count = 0
    with workspace.written(columns) as column_file, workspace.written(values) as value_file:
        for start, stop in row_ranges(len(rows), rows.source_row_bytes, BLOCK_BYTES):
            block = rows.entries(slice(start, stop))
            indptr[start + 1 : stop + 1] = count + block.indptr[1:]
            count = int(indptr[stop])
            column_file.write(block.indices.data)
            value_file.write(block.data.data)
            progress.reach(stop)
    return SparseFeatures(
        indptr, workspace.map(columns, "<i4", (count,)), workspace.map(values, rows.dtype, (count,)), rows.shape[1]
    )
