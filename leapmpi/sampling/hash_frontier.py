"""Frontier of a sample, as in frontier.py, in memory proportional to the sample.

Positions are kept in an exact hash table with linear probing (Knuth, "The art of computer programming", vol. 3, section
6.4, algorithm L).
"""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.frontier import grown
from leapmpi.system.intrinsics import prefetch
from leapmpi.system.jit import compiled

_AHEAD = 16
"""Entries between the prefetch of a cache line and its use."""

_LEAST = 1 << 10
"""Slots of the first table."""

_ODD, _64 = np.uint64(0x9E3779B97F4A7C15), np.uint64(64)


@compiled
def _slot(vertex, bits):
    """Return the first slot to try for `vertex`, in a table of 2**bits slots (Knuth's multiplicative hashing)."""
    return np.int64((np.uint64(vertex) * _ODD) >> (_64 - np.uint64(bits)))


@compiled
def _find(table, bits, vertex, base):
    """Return the slot that holds `vertex`, or the free one for it. Entries below `base` are free."""
    slot, mask = _slot(vertex, bits), (1 << bits) - 1
    while table[2 * slot + 1] >= base and table[2 * slot] != vertex:
        slot = (slot + 1) & mask
    return slot


@compiled
def _number(vertices, start, table, bits, base, src, known, indices):
    """Number vertices[start:] in order of first appearance, until the table is half full.

    table: int64[2 * 2**bits]: by slot a vertex, and `base` + its position in `src`, which holds `known` so far. Writes
    the position of each of `vertices` to `indices`, and new vertices to `src`. Returns the number of finished
    `vertices`, and of known ones.
    """
    # Beyond half full, probes of open addressing become long; the caller then doubles the table.
    room = (1 << bits) >> 1
    for e in range(start, len(vertices)):
        if known >= room:
            return e, known
        if e + _AHEAD < len(vertices):
            prefetch(table, np.intp(2 * _slot(np.int64(vertices[e + _AHEAD]), bits)))
        # Positions below `base` belong to earlier batches, so the table is never cleared in between.
        vertex = np.int64(vertices[e])
        slot = _find(table, bits, vertex, base)
        position = table[2 * slot + 1] - base
        if position < 0:
            position = known
            table[2 * slot], table[2 * slot + 1] = vertex, base + known
            src[known] = vertex
            known += 1
        indices[e] = np.int32(position)
    return len(vertices), known


class HashFrontier:
    """Distinct vertices (`count` of them) in order of first appearance: `src`.

    Keeps 32 to 64 bytes of working memory per vertex of the largest sample so far. Positions of each sample start at a
    higher base, so entries of earlier samples need no clearing.
    """

    def __init__(self) -> None:
        self.count = 0
        self._bits, self._base = _LEAST.bit_length() - 1, 1
        self._table = np.zeros(2 * _LEAST, np.int64)
        self._src = np.empty(0, np.int64)

    @property
    def src(self) -> np.ndarray:
        """Vertices, int64[count]; a view."""
        return self._src[: self.count]

    def add(self, vertices: np.ndarray) -> np.ndarray:
        """Append the new ones among `vertices` (int[k]). Returns the position of each of `vertices`: int32[k]."""
        positions = np.empty(len(vertices), np.int32)
        self._src = grown(self._src, self.count + len(vertices), self.count)
        done = 0
        while True:
            done, self.count = _number(
                *(vertices, done, self._table, self._bits, self._base, self._src, self.count, positions)
            )
            if done == len(vertices):
                return positions
            self._grow()

    def clear(self) -> None:
        """Forget all vertices."""
        self._base += self.count
        self.count = 0

    def _grow(self) -> None:
        """Double the table and insert the vertices of this sample."""
        self._bits, self._base = self._bits + 1, 1
        self._table = np.zeros(2 << self._bits, np.int64)
        positions = np.empty(self.count, np.int32)
        _number(self.src, 0, self._table, self._bits, self._base, self._src, 0, positions)
