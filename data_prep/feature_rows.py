"""Features as they will be written, made from the source's rows when they are asked for: no copy of them is held."""

from __future__ import annotations

import numpy as np

from data_prep.raw_graph import SparseRows
from leapmpi.dataset.validation import check_finite


class FeatureRows:
    """Features [n, F] of `dtype`: rows `kept` int64[n] of a source's (None: all), dense, finite, normalised if wanted.

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
        self._raw, self._normalise, self._where, self._kept = raw, normalise, where, kept
        self.dtype = np.dtype(dtype)
        self.shape = (raw.shape[0] if kept is None else len(kept), raw.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def among(self, kept: np.ndarray) -> FeatureRows:
        """The rows `kept` of these, none of which were left out before."""
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

    def _check(self, block: np.ndarray, chosen: slice | np.ndarray) -> None:
        if isinstance(chosen, slice):
            check_finite(block, self._where, chosen.start)
            return
        for row in np.flatnonzero(~np.isfinite(block).all(axis=1))[:1]:
            check_finite(block[row : row + 1], self._where, int(chosen[row]))


def _row_normalised(features: np.ndarray) -> np.ndarray:
    rows = features.astype(np.float32, copy=False)
    total = np.abs(rows).sum(axis=1, keepdims=True, dtype=np.float64)
    return (rows / np.where(total == 0, 1, total)).astype(features.dtype)
