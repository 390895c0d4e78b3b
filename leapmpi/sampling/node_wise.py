"""Node-wise neighbour sampling without replacement (GraphSAGE; Hamilton, Ying, Leskovec, NeurIPS 2017).

The subset drawn for a destination is a pure function of (key, hop, original id of the destination) and of its
adjacency ordered by original id; it is the same in every batch, on every rank and for every partition.
Subsets are exactly uniform, by Floyd's algorithm (Bentley, Floyd: "A sample of brilliance", CACM 30(9), 1987).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.compiled import compiled
from leapmpi.errors import ConfigError
from leapmpi.sampling.block import Block
from leapmpi.sampling.keys import DrawKey, bounded, fold, key_hash
from leapmpi.sampling.numbering import describe, forget, grown, number
from leapmpi.sampling.sampler import Drawn, Sampler

if TYPE_CHECKING:
    from leapmpi.dataset.topology import Topology

ALL = -1
"""The fan-out that takes every neighbour."""

_SWEEP = 4
"""Up to this many mark words per drawn position they are swept for the ascending order; above, sorting is faster."""

_ZERO, _ONE, _S6, _S58, _LOW6 = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(58), np.uint64(63)

_DE_BRUIJN = np.uint64(0x022FDD63CC95386D)
"""A De Bruijn sequence: its 64 windows of 6 bits differ, so a product with a power of two tells the exponent."""

_BIT_NUMBER = np.zeros(64, np.int64)
for _bit in range(64):
    _BIT_NUMBER[(int(_DE_BRUIJN) << _bit) % 2**64 >> 58] = _bit


@compiled
def _count(degree, fanout, indptr):
    """Fill `indptr` (int64[n_dst + 1]) for min(degree, fan-out) edges per destination; -1 takes all."""
    indptr[0] = 0
    for i in range(len(degree)):
        taken = degree[i] if fanout < 0 or degree[i] < fanout else fanout
        indptr[i + 1] = indptr[i] + taken


@compiled
def _spread(bits, first, out, count):
    """Append `first` + the number of each set bit, ascending, to the `count` entries of `out`; the new count."""
    while bits:
        lowest = bits & (~bits + _ONE)
        out[count] = first + _BIT_NUMBER[(lowest * _DE_BRUIJN) >> _S58]
        bits ^= lowest
        count += 1
    return count


@compiled
def _subset_of_word(hashed, degree, out):
    """Draw len(out) distinct positions below `degree` <= 64, ascending, with one word of marks."""
    bits = _ZERO
    first = degree - len(out)
    for j in range(len(out)):
        last = np.uint64(first + j)
        position = bounded(fold(hashed, j), last + _ONE)
        position = last if (bits >> position) & _ONE else position
        bits |= _ONE << position
    _spread(bits, 0, out, 0)


@compiled
def _subset(hashed, degree, out, marks):
    """Draw the same for any degree. `marks`: uint64 words for `degree` bits, zero before and after."""
    first = degree - len(out)
    for j in range(len(out)):
        last = np.uint64(first + j)
        position = bounded(fold(hashed, j), last + _ONE)
        position = last if (marks[position >> _S6] >> (position & _LOW6)) & _ONE else position
        marks[position >> _S6] |= _ONE << (position & _LOW6)
        out[j] = np.int64(position)
    words = (degree + 63) >> 6
    if words <= _SWEEP * len(out):
        _sweep(marks[:words], out)
    else:
        for j in range(len(out)):
            marks[out[j] >> 6] = _ZERO
        out.sort()


@compiled
def _sweep(marks, out):
    """Write the numbers of all set bits of `marks` to `out`, ascending, and clear them."""
    count = 0
    for word in range(len(marks)):
        count = _spread(marks[word], word << 6, out, count)
        marks[word] = _ZERO


@compiled
def _draw(first, end, dst, original, degree, hashed, indptr, topology_indptr, topology_indices, neighbours, marks):
    """Write the drawn neighbours (global ids) of destinations first..end-1 to their place in `neighbours`.

    Positions first, then one tight loop of look-ups, so that the processor overlaps the cache misses.
    """
    for i in range(first, end):
        out = neighbours[indptr[i] : indptr[i + 1]]
        if len(out) == degree[i]:
            for j in range(len(out)):
                out[j] = j
        elif degree[i] <= 64:
            _subset_of_word(fold(hashed, original[i]), degree[i], out)
        else:
            _subset(fold(hashed, original[i]), degree[i], out, marks)
    for i in range(first, end):
        start = topology_indptr[dst[i]]
        for j in range(indptr[i], indptr[i + 1]):
            neighbours[j] = topology_indices[start + neighbours[j]]


class NodeWiseSampler(Sampler):
    """Draws at most `fanouts[h]` distinct in-neighbours of each destination of hop h; `ALL` (-1) takes every one.

    Keeps working memory of 4 bytes per vertex of the graph between calls. One thread at a time may call `sample`;
    inside, `threads` of them draw. The result does not depend on their number.

    Raises ConfigError when there is no fan-out or one is neither positive nor -1.
    """

    def __init__(self, topology: Topology, fanouts: tuple[int, ...], threads: int = 1) -> None:
        self.topology = topology
        self.fanouts = checked_fanouts(fanouts)
        self._pool = ThreadPoolExecutor(threads, "sampler") if threads > 1 else None
        self.threads = threads
        self._place = np.full(topology.vertices, -1, np.int32)
        self._marks = [np.zeros(0, np.uint64) for _ in range(threads)]
        self._src, self._original, self._degree = (np.empty(0, np.int64) for _ in range(3))
        self._neighbours = np.empty(0, np.int64)

    def sample(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """The blocks of `roots`; the rest of the batch does not matter."""
        del batch
        roots = np.ascontiguousarray(roots, np.int64)
        if len(roots) and not 0 <= roots.min() <= roots.max() < self.topology.vertices:
            raise ValueError(f"roots must lie in [0, {self.topology.vertices})")
        hashed = key_hash(key)
        known = 0
        try:
            known = self._add(roots, np.empty(len(roots), np.int32), 0)
            if known < len(roots):
                raise ValueError("roots must be distinct")
            drafts = []
            for hop, fanout in enumerate(self.fanouts):
                n_dst = known
                indptr, neighbours = self._draw_hop(np.uint64(fold(hashed, hop)), fanout, n_dst)
                indices = np.empty(len(neighbours), np.int32)
                known = self._add(neighbours, indices, n_dst)
                drafts.append((hop, n_dst, known, indptr, indices))
        finally:
            forget(self._place, self._src, known)
        src, original, degree = (a[:known].copy() for a in (self._src, self._original, self._degree))
        return [
            Block(hop, n_dst, src[:n_src], indptr, indices, original[:n_src], degree[:n_src])
            for hop, n_dst, n_src, indptr, indices in drafts
        ]

    def neighbours(self, key: DrawKey, hop: int, vertices: np.ndarray, batch: np.ndarray | None = None) -> Drawn:
        """What `sample` draws for `vertices` (int64[n], repeats allowed) at `hop`, whoever asks and wherever."""
        del batch
        n, topology = len(vertices), self.topology
        self._src, self._original, self._degree = (grown(a, n, 0) for a in (self._src, self._original, self._degree))
        self._src[:n] = vertices
        describe(topology.indptr, topology.original_id, self._src, 0, n, self._original, self._degree)
        indptr, drawn = self._draw_hop(np.uint64(fold(key_hash(key), hop)), self.fanouts[hop], n)
        return Drawn(indptr, drawn.astype(np.int64))

    def _add(self, vertices: np.ndarray, indices: np.ndarray, known: int) -> int:
        """Append the new ones of `vertices` to the sources, positions of all to `indices`; the new count."""
        capacity = min(known + len(vertices), self.topology.vertices)
        self._src, self._original, self._degree = (
            grown(a, capacity, known) for a in (self._src, self._original, self._degree)
        )
        count = number(vertices, self._place, self._src, known, indices)
        topology = self.topology
        describe(topology.indptr, topology.original_id, self._src, known, count, self._original, self._degree)
        return count

    def _draw_hop(self, hashed: np.uint64, fanout: int, n_dst: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw for the first `n_dst` sources: indptr int64[n_dst + 1] and the neighbours' global ids."""
        degree = self._degree[:n_dst]
        indptr = np.empty(n_dst + 1, np.int64)
        _count(degree, fanout, indptr)
        self._neighbours = grown(self._neighbours, indptr[-1], 0)
        if n_dst:
            self._marks = [_zeros_grown(marks, int(degree.max()) // 64 + 1) for marks in self._marks]

        def draw(first: int, end: int, marks: np.ndarray) -> None:
            topology = (self.topology.indptr, self.topology.indices)
            dst = (self._src, self._original, self._degree)
            _draw(first, end, *dst, hashed, indptr, *topology, self._neighbours, marks)

        if self._pool is None:
            draw(0, n_dst, self._marks[0])
        else:
            bounds = np.searchsorted(indptr, np.linspace(0, indptr[-1], self.threads + 1)[1:-1].astype(np.int64))
            bounds = [0, *bounds.tolist(), n_dst]
            list(self._pool.map(draw, bounds[:-1], bounds[1:], self._marks))
        return indptr, self._neighbours[: indptr[-1]]


def checked_fanouts(fanouts: tuple[int, ...]) -> tuple[int, ...]:
    """The fan-outs as a tuple of ints.

    Raises ConfigError when there is none, or one is not a positive whole number or -1 (all neighbours).
    """
    if not len(fanouts):
        raise ConfigError("a fan-out is needed for each layer; give at least one, such as 10,10")
    for fanout in fanouts:
        if (
            isinstance(fanout, bool)
            or not isinstance(fanout, int | np.integer)
            or not (fanout == ALL or 1 <= fanout < 2**63)
        ):
            raise ConfigError(f"fan-out {fanout!r} is neither a positive whole number nor -1 (all neighbours)")
    return tuple(int(fanout) for fanout in fanouts)


def _zeros_grown(array: np.ndarray, capacity: int) -> np.ndarray:
    return array if len(array) >= capacity else np.zeros(capacity + capacity // 4, array.dtype)
