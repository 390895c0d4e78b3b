"""An order over what all ranks hold, of which no rank sees more than its own: by sorted keys, and by original ids.

The k-th smallest of all keys is found bit by bit: each rank counts its own keys below a bound, and the counts are added
(a binary search over values, as in histogram sort; Kale and Krishnan, "A comparison based parallel sorting algorithm",
ICPP 1993). All k are searched for at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator

BITS = 64
"""Sums that it takes to find all keys."""


def own_counts(keys: np.ndarray, wanted: np.ndarray, communicator: Communicator) -> np.ndarray:
    """How many of `keys` are among the wanted[i] smallest of all ranks: int64[k]. Collective.

    keys: uint64[n], this rank's, ascending; wanted: int64[k], the same on all ranks, at most as many as there are keys.
    Of equal keys those of lower ranks come first.
    """
    bound = np.zeros(len(wanted), np.uint64)
    for bit in reversed(range(BITS)):
        higher = bound | np.uint64(1 << bit)
        below = np.searchsorted(keys, higher).astype(np.int64)
        communicator.all_reduce(below, "control")
        bound = np.where(below < wanted, higher, bound)

    # `bound` is now the wanted[i]-th key itself, of which several ranks may have some.
    below, upto = (np.searchsorted(keys, bound, side=side).astype(np.int64) for side in ("left", "right"))
    every = communicator.all_gather_rows(np.stack([below, upto - below]))
    left = wanted - every[:, 0].sum(axis=0) - every[: communicator.rank, 1].sum(axis=0)
    return below + np.clip(left, 0, upto - below)


def slice_bounds(vertices: int, ranks: int) -> np.ndarray:
    """int64[ranks + 1]: where the slice of each rank begins in an order of `vertices`."""
    return np.arange(ranks + 1, dtype=np.int64) * vertices // ranks


class OriginalOrder:
    """All vertices by original id, of which each rank holds a slice: rank r the places bounds[r] to bounds[r + 1]."""

    def __init__(self, original: np.ndarray, first: int, vertices: int, communicator: Communicator) -> None:
        """`original` (int64[n]) are the original ids of this rank's vertices, from `first` on. Collective."""
        self._communicator = communicator
        self.bounds = slice_bounds(vertices, communicator.size)
        self._order = np.argsort(original)
        self._names = original[self._order]
        inner = own_counts(self._names.astype(np.uint64), self.bounds[1:-1], communicator)
        self._counts = np.diff(inner, prepend=0, append=len(original))
        self.ids = self.slice_of(np.arange(first, first + len(original)))
        """int64: the vertices of this rank's slice, in order."""

    def slice_of(self, values: np.ndarray) -> np.ndarray:
        """What `values` (int64[n], of this rank's vertices) are for the vertices of this rank's slice. Collective."""
        rows = np.stack([self._names, values[self._order]], axis=1)
        theirs = self._communicator.exchange_counts(self._counts)
        received = np.empty((int(theirs.sum()), 2), np.int64)
        self._communicator.exchange(rows, self._counts, received, theirs, "topology")
        return received[np.argsort(received[:, 0]), 1]
