"""Frontier of a sample: its distinct vertices so far, with local ids in order of first appearance."""

from __future__ import annotations

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.sampling.workers import SamplerThreads
from leapmpi.system.intrinsics import prefetch
from leapmpi.system.jit import compiled

_MOST = np.iinfo(np.int32).max

_AHEAD = 32
"""Entries between the prefetch of a cache line and its use."""


@compiled
def _number(vertices, place, base, src, known, indices):
    """Number vertices in order of first appearance; return the number of vertices now known.

    `place` (int32[n]) holds `base` + the position in `src` of each known vertex, and less than `base` for others. `src`
    holds `known` vertices so far. Writes the position of each of `vertices` to `indices`, and new vertices to `src`,
    which must have room for one extra entry.
    """
    # Avoid branches on random draws, which processors cannot predict: always write `src[known]`, and count the
    # entry only if the vertex is new.
    for e in range(len(vertices)):
        if e + _AHEAD < len(vertices):
            prefetch(place, np.intp(vertices[e + _AHEAD]))
        vertex = vertices[e]
        position = np.int64(place[vertex]) - base
        new = position < 0
        position = known if new else position
        place[vertex] = np.int32(base + position)
        src[known] = vertex
        known += np.int64(new)
        indices[e] = np.int32(position)
    return known


@compiled
def _look_up(topology_indptr, topology_original, outside_degree, src, first, end, original, degree):
    """Look up original ids and in-degrees of src[first:end], also of vertices without a list; -1 if unknown.

    outside_degree: int64[k], of the first vertices without a list.
    """
    lists, named = len(topology_indptr) - 1, len(topology_original)
    for i in range(first, end):
        if i + _AHEAD < end:
            prefetch(topology_indptr, np.intp(src[i + _AHEAD]))
            prefetch(topology_original, np.intp(src[i + _AHEAD]))
        vertex = np.int64(src[i])
        original[i] = topology_original[vertex] if vertex < named else -1
        if vertex < lists:
            degree[i] = topology_indptr[vertex + 1] - topology_indptr[vertex]
        else:
            degree[i] = outside_degree[vertex - lists] if vertex < lists + len(outside_degree) else -1


def grown(array: np.ndarray, capacity: int, kept: int) -> np.ndarray:
    """Return an array with room for `capacity` + 1 entries: `array`, or a larger copy of its first `kept` entries."""
    if len(array) > capacity:
        return array
    larger = np.empty(capacity + capacity // 4 + 1, array.dtype)
    larger[:kept] = array[:kept]
    return larger


class Frontier:
    """Distinct vertices (`count` of them) in order of first appearance, with original ids and in-degrees.

    Keeps working memory of 4 bytes per vertex of the graph, and for the largest sample so far. `_place` holds `_base` +
    position of each vertex. Each sample starts at a higher base, so entries of earlier samples need no clearing.
    """

    def __init__(self, topology: Topology, threads: SamplerThreads) -> None:
        self.count = 0
        self._topology = topology
        self._threads = threads
        self._place = np.full(topology.numbered, -1, np.int32)
        degrees = topology.outside_degree
        self._outside = np.empty(0, np.int64) if degrees is None else degrees
        self._base = self._end = 0
        self._held = [np.empty(0, np.int64) for _ in range(3)]
        """Vertices, original ids and in-degrees, with spare capacity."""

    def add(self, vertices: np.ndarray) -> np.ndarray:
        """Append the new ones among `vertices` (int[k]). Returns the position of each of `vertices`: int32[k]."""
        known = self.count
        positions = np.empty(len(vertices), np.int32)

        # Make room; bases start again from 0 where int32 would overflow.
        capacity = min(known + len(vertices), len(self._place))
        self._held = [grown(each, capacity, known) for each in self._held]
        if self._base + capacity > _MOST:
            self._base = 0
            self._place.fill(-1)
            self._place[self._held[0][:known]] = np.arange(known)
        self._end = self._base + capacity

        self.count = int(_number(vertices, self._place, self._base, self._held[0], known, positions))
        self._look_up(known, self.count)
        return positions

    def looked_up(self, vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return `vertices` (int64[k], repeats allowed), original ids and in-degrees, in an empty frontier."""
        self._held = [grown(each, len(vertices), 0) for each in self._held]
        self._held[0][: len(vertices)] = vertices
        self._look_up(0, len(vertices))
        return self.first(len(vertices))

    def first(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the first `count` vertices, their original ids and in-degrees, int64[count] each: views."""
        src, original, degree = self._held
        return src[:count], original[:count], degree[:count]

    def clear(self) -> None:
        """Forget all vertices."""
        self._base = self._end
        self.count = 0

    def _look_up(self, first: int, end: int) -> None:
        """Look up the original ids and in-degrees of the vertices at positions first..end-1."""
        topology, (src, *found) = self._topology, self._held

        def work(_: int, first: int, end: int) -> None:
            _look_up(topology.indptr, topology.original_id, self._outside, src, first, end, *found)

        self._threads.share(first, end, work)
