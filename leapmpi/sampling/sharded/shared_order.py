"""Distributed order over data of all ranks, each seeing only its own: by sorted keys, and by original ids.

The k-th smallest of all keys is found bit by bit: each rank counts its own keys below a bound, and the counts are
summed. This is a binary search over values, as in histogram sort (Kale and Krishnan, "A comparison based parallel
sorting algorithm", ICPP 1993). All k are searched for at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.system.jit import compiled

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator

BITS = 64
"""Number of sums needed to find all keys."""


@compiled
def _places(keys, first, end, bounds, with_equal):
    """Return int64[k]: count of keys[first[i]:end[i]], ascending, below bounds[i], or equal if `with_equal`."""
    out = np.empty(len(bounds), np.int64)
    for i in range(len(bounds)):
        low, high = first[i], end[i]
        while low < high:
            middle = (low + high) // 2
            if keys[middle] < bounds[i] or (with_equal and keys[middle] == bounds[i]):
                low = middle + 1
            else:
                high = middle
        out[i] = low - first[i]
    return out


def own_counts(columns: Sequence[np.ndarray], wanted: np.ndarray, communicator: Communicator) -> np.ndarray:
    """Return the number of this rank's keys among the wanted[i] smallest of all ranks: int64[k]. Collective.

    columns: uint64[n] each, compared one after the other; keys ascend. wanted: int64[k], the same on all ranks, at most
    as many as there are keys. Of equal keys those of lower ranks come first.
    """
    # `first` to `end` are own keys that equal the wanted one in all previous columns.
    first, end = np.zeros(len(wanted), np.int64), np.full(len(wanted), len(columns[0]))
    for column in columns:
        bound = np.zeros(len(wanted), np.uint64)
        for bit in reversed(range(BITS)):
            higher = bound | np.uint64(1 << bit)
            below = _places(column, first, end, higher, False)
            communicator.all_reduce(below, "control")
            bound = np.where(below < wanted, higher, bound)
        below, upto = (_places(column, first, end, bound, equal) for equal in (False, True))
        wanted = wanted - communicator.all_gather_rows(below).sum(axis=0)
        first, end = first + below, first + upto
    equal = communicator.all_gather_rows(end - first)
    left = wanted - equal[: communicator.rank].sum(axis=0)
    return first + np.clip(left, 0, end - first)


def ascending(values: np.ndarray) -> np.ndarray:
    """Return words uint64[k] in the order of `values`, int64[k] or float64[k] without NaN."""
    top = np.uint64(1 << 63)
    if values.dtype.kind != "f":
        return values.astype(np.int64).view(np.uint64) ^ top
    # Adding 0.0 merges both zeros. Words of negative numbers descend, so invert them.
    words = (values.astype(np.float64) + 0.0).view(np.uint64)
    return np.where(words & top, ~words, words | top)


def values_of(words: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the values of `dtype` (int64 or float64) that `ascending` turned into `words` (uint64[k])."""
    top = np.uint64(1 << 63)
    if dtype.kind != "f":
        return (words ^ top).view(np.int64)
    return np.where(words & top, words ^ top, ~words).view(np.float64)


def slice_bounds(vertices: int, ranks: int) -> np.ndarray:
    """Return the first position of each rank's slice in an order of `vertices`: int64[ranks + 1]."""
    return np.arange(ranks + 1, dtype=np.int64) * vertices // ranks


class OriginalOrder:
    """Order of all vertices by original id. Rank r holds the positions bounds[r] to bounds[r + 1]."""

    def __init__(self, original: np.ndarray, first: int, vertices: int, communicator: Communicator) -> None:
        """Sort `original` (int64[n]), original ids of this rank's vertices, from `first` on. Collective."""
        self._communicator = communicator
        self.bounds = slice_bounds(vertices, communicator.size)
        self._order = np.argsort(original)
        self._names = original[self._order]
        inner = own_counts([self._names.astype(np.uint64)], self.bounds[1:-1], communicator)
        self._counts = np.diff(inner, prepend=0, append=len(original))
        self.ids = self.slice_of(np.arange(first, first + len(original)))
        """Vertices of this rank's slice, int64, in order."""

    def slice_of(self, values: np.ndarray) -> np.ndarray:
        """Redistribute `values` (int64[n], of this rank's vertices) to the ranks that hold their positions.

        Collective.
        """
        rows = np.stack([self._names, values[self._order]], axis=1)
        theirs = self._communicator.exchange_counts(self._counts)
        received = np.empty((int(theirs.sum()), 2), np.int64)
        self._communicator.exchange(rows, self._counts, received, theirs, "topology")
        return received[np.argsort(received[:, 0]), 1]
