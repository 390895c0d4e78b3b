"""Set of ids that numbers its members, in a quarter of a byte per possible id.

A succinct bit vector with rank: bits in words, and before each word the count of members so far (Jacobson,
"Space-efficient static trees and graphs", FOCS 1989).
"""

from __future__ import annotations

import numpy as np

from leapmpi.system.intrinsics import population_count, trailing_zeros
from leapmpi.system.jit import compiled

_ZERO, _ONE, _S6, _LOW6 = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)


@compiled
def _add(ids, first, end, words):
    """Set the bits of those of `ids` that are not in [first, end)."""
    for i in range(len(ids)):
        each = np.int64(ids[i])
        if each < first or each >= end:
            words[each >> 6] |= _ONE << (np.uint64(each) & _LOW6)


@compiled
def _count(words, before):
    """Write the number of bits before each word; return the total."""
    total = np.int64(0)
    for w in range(len(words)):
        before[w] = total
        total += np.int64(population_count(words[w]))
    return total


@compiled
def _list(words, out):
    """Write the members, ascending."""
    count = 0
    for w in range(len(words)):
        bits = words[w]
        while bits:
            out[count] = 64 * w + np.int64(trailing_zeros(bits))
            bits &= bits - _ONE
            count += 1


@compiled
def _renumber(ids, first, end, words, before):
    """Replace each id of [first, end) by its offset, and each other one by its number after those."""
    own = end - first
    for i in range(len(ids)):
        each = np.int64(ids[i])
        if first <= each < end:
            ids[i] = each - first
        else:
            low = words[each >> 6] & ((_ONE << (np.uint64(each) & _LOW6)) - _ONE)
            ids[i] = own + before[each >> 6] + np.int64(population_count(low))


class IdSet:
    """Ids outside a range, each with its number in ascending order."""

    def __init__(self, size: int, first: int, end: int) -> None:
        """Start empty, for ids in [0, size) outside [first, end)."""
        self.first, self.end = first, end
        self._words = np.zeros(-(-size // 64), np.uint64)
        self._before = np.zeros(len(self._words), np.int64)
        self.count = 0

    def add(self, ids: np.ndarray) -> None:
        """Add those of `ids` (integers) outside the range."""
        _add(ids, self.first, self.end, self._words)
        self.count = int(_count(self._words, self._before))

    def listed(self, dtype: np.dtype | type) -> np.ndarray:
        """Return the members, ascending, as an array of `dtype` [count]."""
        out = np.empty(self.count, dtype)
        _list(self._words, out)
        return out

    def renumber(self, ids: np.ndarray) -> None:
        """Replace ids in place: those of the range by 0, 1, ..., members by the next numbers, in order."""
        _renumber(ids, self.first, self.end, self._words, self._before)
