"""Distinct vertices and the place of each among them, found by a table where their ids are close together."""

from __future__ import annotations

import numpy as np

_SPARSE = 32
"""A table has at most so many entries for each vertex; where ids are further apart, they are sorted instead."""


class DistinctVertices:
    """Distinct vertices, `ids` int64[n], and the place of each among them."""

    def __init__(self, ids: np.ndarray) -> None:
        self.ids, dense = ids, _span(ids)
        self._table: np.ndarray | None = None
        if dense is None:
            self._order = np.argsort(ids)
            return
        self._first, size = dense
        self._table = np.empty(size, np.int32)
        self._table[ids - self._first] = np.arange(len(ids), dtype=np.int32)

    @classmethod
    def of(cls, first: np.ndarray, wanted: np.ndarray) -> DistinctVertices:
        """Collect the distinct ones of `wanted` (int64[k]): `first`, which are among them, then others, ascending."""
        dense = _span(wanted)
        if dense is None:
            return cls(np.concatenate((first, np.setdiff1d(wanted, first))))
        begin, size = dense
        marks = np.zeros(size, np.bool_)
        marks[wanted - begin] = True
        marks[first - begin] = False
        return cls(np.concatenate((first, begin + np.flatnonzero(marks))))

    def numbers(self, vertices: np.ndarray) -> np.ndarray:
        """Return int64[k], the place of each of `vertices`, all of them among the ids."""
        if self._table is not None:
            return self._table[vertices - self._first].astype(np.int64)
        return self._order[np.searchsorted(self.ids, vertices, sorter=self._order)]


def distinct(ids: np.ndarray) -> np.ndarray:
    """Return the distinct ones of `ids` (int64 of any shape), ascending: int64[n]."""
    return DistinctVertices.of(np.empty(0, np.int64), ids.reshape(-1)).ids


def _span(ids: np.ndarray) -> tuple[int, int] | None:
    """Return the least of `ids`, and how many numbers there are from it to the largest; None if far more than ids."""
    if not len(ids):
        return 0, 0
    least, size = int(ids.min()), int(ids.max() - ids.min()) + 1
    return (least, size) if size <= _SPARSE * len(ids) else None
