"""Features in the form in which they are written, made from the source's rows on demand: no copy is held."""

from __future__ import annotations

import numpy as np

from data_prep.edges.raw_graph import SparseRows
from leapmpi.dataset.sparse_features import SparseFeatures, from_entries
from leapmpi.dataset.validation import check_finite
from leapmpi.errors import DataError


class FeatureRows:
    """Features [n, F] of `dtype`: the rows `kept` int64[n] of a source (None: all), dense and finite.

    With `normalise` the absolute values of each row sum to 1.

    Slicing by rows gives an array, and raises DataError naming row and column of a value that is no finite number.
    """

    ndim = 2

    def __init__(
        self,
        raw: np.ndarray | SparseRows,
        dtype: str,
        normalise: bool,
        where: str,
        kept: np.ndarray | None = None,
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

    def among(self, kept: np.ndarray) -> FeatureRows:
        """The rows `kept` int64[k] of all rows of the source."""
        return FeatureRows(self._raw, self.dtype.str, self._normalise, self._where, kept)

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(len(self))
        chosen = slice(start, stop) if self._kept is None else self._kept[start:stop]
        with np.errstate(over="ignore"):  # what overflows becomes infinite and is found below
            if isinstance(self._raw, SparseRows):
                block = self._raw.taken(chosen).dense(self.dtype)
            else:
                block = np.ascontiguousarray(self._raw[chosen], self.dtype)
        self._check(block, chosen)
        return _row_normalised(block) if self._normalise else block

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
        """The entries that are not zero in some consecutive rows; the same numbers and errors as by slicing."""
        if not isinstance(self._raw, SparseRows):
            block = self[rows]
            row, column = np.nonzero(block)
            return from_entries(row, column, block[row, column], block.shape)

        # The entries of a sparse source, those of the same place added up.
        start, stop, _ = rows.indices(len(self))
        chosen = slice(start, stop) if self._kept is None else self._kept[start:stop]
        taken = self._raw.taken(chosen)
        row = np.repeat(np.arange(taken.shape[0]), np.diff(taken.indptr))
        with np.errstate(over="ignore"):
            row, column, values = _summed(row, taken.indices, taken.data.astype(self.dtype))

        # Name the first value that is not finite by its row in the source.
        finite = np.isfinite(values)
        if not finite.all():
            entry = int(np.argmin(finite))
            place = start + row[entry] if self._kept is None else chosen[row[entry]]
            raise DataError(
                f"{self._where}: features, row {place}, column {column[entry]} is {values[entry]}; "
                "features must be finite"
            )

        # Normalise as dense rows are, and drop what is zero.
        if self._normalise:
            values = values.astype(np.float32, copy=False)
            total = np.bincount(row, np.abs(values), taken.shape[0])
            values = (values / np.where(total == 0, 1, total)[row]).astype(self.dtype)
        nonzero = values != 0
        return from_entries(row[nonzero], column[nonzero], values[nonzero], taken.shape)

    def _check(self, block: np.ndarray, chosen: slice | np.ndarray) -> None:
        """Raise DataError where the rows `chosen` of the source, `block`, hold a value that is not finite."""
        if isinstance(chosen, slice):
            check_finite(block, self._where, chosen.start)
            return
        for row in np.flatnonzero(~np.isfinite(block).all(axis=1))[:1]:
            check_finite(block[row : row + 1], self._where, int(chosen[row]))


def _summed(row: np.ndarray, column: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Entries by row and column; those of the same place are added up in their order."""
    order = np.lexsort((column, row))
    row, column, values = row[order], column[order], values[order]
    first = np.flatnonzero(np.r_[True, (row[1:] != row[:-1]) | (column[1:] != column[:-1])][: len(row)])
    if len(first) < len(row):
        values = np.add.reduceat(values, first, dtype=values.dtype)
    return row[first], column[first], values


def _row_normalised(features: np.ndarray) -> np.ndarray:
    """Rows divided by the sums of their absolute values, in float32; rows of zeros stay."""
    rows = features.astype(np.float32, copy=False)
    total = np.abs(rows).sum(axis=1, keepdims=True, dtype=np.float64)
    return (rows / np.where(total == 0, 1, total)).astype(features.dtype)
