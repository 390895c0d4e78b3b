"""Node-wise neighbour sampling without replacement (GraphSAGE; Hamilton, Ying, Leskovec, NeurIPS 2017).

The subset drawn for a destination is a pure function of (key, hop, original id of the destination) and of its adjacency
ordered by original id. It is the same in every batch, on every rank and for every partition. Subsets are exactly
uniform, by Floyd's algorithm (Bentley, Floyd: "A sample of brilliance", CACM 30(9), 1987).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.sampling.frontier import grown
from leapmpi.sampling.hop_sampler import HopSampler, capped_indptr
from leapmpi.sampling.sampler import Drawn, Setup
from leapmpi.system.counter_rng import DrawKey, bounded, fold, key_hash
from leapmpi.system.intrinsics import prefetch, trailing_zeros
from leapmpi.system.jit import compiled

_SWEEP = 4
"""Most mark words per drawn position for which reading all marks is faster than sorting the positions."""

_GROUP = 32
"""Number of destinations whose neighbours are prefetched together."""

_ZERO, _ONE, _S6, _LOW6 = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)
_NONE = np.int64(0)  # literals have types of their own, for which kernels would be compiled again


@compiled
def _append_set_bits(bits, first, out, count):
    """Append `first` + the number of each set bit, ascending, to out[:count]; return the new count."""
    while bits:
        out[count] = first + np.int64(trailing_zeros(bits))
        bits &= bits - _ONE
        count += 1
    return count


@compiled
def _subset_of_word(hashed, degree, out):
    """Draw len(out) distinct positions below `degree` <= 64, ascending (Floyd), with one word of marks."""
    bits = _ZERO
    first = degree - len(out)
    for j in range(len(out)):
        last = np.uint64(first + j)
        position = bounded(fold(hashed, j), last + _ONE)
        position = last if (bits >> position) & _ONE else position
        bits |= _ONE << position
    _append_set_bits(bits, _NONE, out, _NONE)


@compiled
def _subset(hashed, degree, out, marks):
    """Draw the same for any degree. `marks`: uint64 words for `degree` bits, zero before and after."""
    # Floyd: draw number j is below first + j + 1; a position drawn before is replaced by the last one.
    first = degree - len(out)
    for j in range(len(out)):
        last = np.uint64(first + j)
        position = bounded(fold(hashed, j), last + _ONE)
        position = last if (marks[position >> _S6] >> (position & _LOW6)) & _ONE else position
        marks[position >> _S6] |= _ONE << (position & _LOW6)
        out[j] = np.int64(position)

    # Order the positions and clear the marks, by whichever reads less.
    words = (degree + 63) >> 6
    if words <= _SWEEP * len(out):
        _sweep(marks[:words], out)
    else:
        for j in range(len(out)):
            marks[out[j] >> 6] = _ZERO
        _sort(out)


@compiled
def _sort(out):
    """Sort the numbers in `out` by Shell's method; numba's own sort takes a second to compile."""
    gap = 1
    while gap < len(out) // 3:
        gap = 3 * gap + 1
    while gap:
        for j in range(gap, len(out)):
            number, place = out[j], j
            while place >= gap and out[place - gap] > number:
                out[place] = out[place - gap]
                place -= gap
            out[place] = number
        gap //= 3


@compiled
def _sweep(marks, out):
    """Write the numbers of all set bits of `marks` to `out`, ascending, and clear them."""
    count = _NONE
    for word in range(len(marks)):
        count = _append_set_bits(marks[word], word << 6, out, count)
        marks[word] = _ZERO


@compiled
def distinct_positions(hashed, original, degree, out, marks):
    """Draw len(out) distinct positions below `degree`, ascending, for the destination called `original`.

    hashed: uint64, of key and hop; marks: uint64 words for `degree` bits, zero before and after.
    """
    if len(out) == degree:
        for j in range(len(out)):
            out[j] = j
    elif degree <= 64:
        _subset_of_word(fold(hashed, original), degree, out)
    else:
        _subset(fold(hashed, original), degree, out, marks)


@compiled
def _positions(first, end, original, degree, hashed, indptr, out, marks):
    """Write the drawn positions of destinations first..end-1 in their adjacency lists to `out`."""
    for i in range(first, end):
        distinct_positions(hashed, original[i], degree[i], out[indptr[i] : indptr[i + 1]], marks)


@compiled
def _draw(first, end, dst, original, degree, hashed, indptr, topology_indptr, topology_indices, neighbours, marks):
    """Write the drawn neighbours (global ids) of destinations first..end-1 to `neighbours`.

    Draws all positions of a group and prefetches their entries before it reads them, so that drawing overlaps memory
    latency.
    """
    starts = np.empty(_GROUP, np.int64)
    for group in range(first, end, _GROUP):
        group_end = min(group + _GROUP, end)

        # Prefetch the list starts of the next group.
        for i in range(group_end, min(group_end + _GROUP, end)):
            prefetch(topology_indptr, dst[i])

        # Draw positions, and prefetch their neighbours.
        _positions(group, group_end, original, degree, hashed, indptr, neighbours, marks)
        for i in range(group, group_end):
            start = topology_indptr[dst[i]]
            starts[i - group] = start
            for j in range(indptr[i], indptr[i + 1]):
                prefetch(topology_indices, start + np.int64(neighbours[j]))

        # Replace positions by neighbours.
        for i in range(group, group_end):
            for j in range(indptr[i], indptr[i + 1]):
                neighbours[j] = topology_indices[starts[i - group] + np.int64(neighbours[j])]


@dataclass
class _WorkingMemory:
    """Memory that draws reuse: drawn neighbours, integers[k], and marks of positions by thread, uint64[w] each."""

    neighbours: np.ndarray
    marks: list[np.ndarray]


class NodeWiseSampler(HopSampler):
    """Sampler of at most `fanouts[h]` distinct in-neighbours per destination of hop h; `ALL` (-1) takes all.

    The result does not depend on the number of threads. The neighbours of `draw` are a view of working memory.
    """

    leaves_edges_out = True
    draws_from_copies = True

    def __init__(
        self, topology: Topology, fanouts: tuple[int, ...], threads: int = 1, relation_fanouts: np.ndarray | None = None
    ) -> None:
        nobody = np.empty(0, np.int64)
        super().__init__(Setup(topology, fanouts, nobody, 0, threads, relation_fanouts))
        self._memory = _WorkingMemory(
            np.empty(0, topology.indices.dtype), [np.zeros(0, np.uint64) for _ in range(self._workers.size)]
        )

    def neighbours(self, key: DrawKey, hop: int, vertices: np.ndarray, batch: np.ndarray | None = None) -> Drawn:
        """Draw as Sampler.neighbours does; the batch does not matter."""
        drawn = super().neighbours(key, hop, vertices, batch)
        return drawn._replace(neighbours=drawn.neighbours.astype(np.int64))

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        indptr, hashed = capped_indptr(degree, self.fanout(hop)), np.uint64(fold(key_hash(key), hop))

        # The marks of a thread have room for the largest degree.
        memory = self._memory
        memory.neighbours = grown(memory.neighbours, int(indptr[-1]), 0)
        words = int(degree.max(initial=0)) // 64 + 1
        if len(memory.marks[0]) < words:
            memory.marks = [np.zeros(words + words // 4, np.uint64) for _ in memory.marks]
        topology = (self.topology.indptr, self.topology.indices)

        def work(thread: int, first: int, end: int) -> None:
            marks = memory.marks[thread]
            _draw(first, end, vertices, original, degree, hashed, indptr, *topology, memory.neighbours, marks)

        self._workers.share_by_cost(indptr, work)
        return Drawn(indptr, memory.neighbours[: indptr[-1]])
