"""The vertices that a sample has reached so far, each once, with local ids in order of first appearance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leapmpi.sampling.relabel import grown, look_up, number
from leapmpi.sampling.workers import SamplerThreads

if TYPE_CHECKING:
    from leapmpi.dataset.topology import Topology


_MOST = np.iinfo(np.int32).max


class Frontier:
    """`count` distinct vertices in order of first appearance, with their original ids and in-degrees.

    Keeps working memory of 4 bytes per vertex of the graph, and of the largest sample so far. `_place` holds `_base` +
    position of each vertex. Each sample starts at a higher base, so the entries of earlier samples, which are all
    below it, need not be cleared.
    """

    def __init__(self, topology: Topology, threads: SamplerThreads | None = None) -> None:
        self.count = 0
        self._topology = topology
        self._threads = threads or SamplerThreads(1)
        self._place = np.full(topology.vertices, -1, np.int32)
        self._base = self._end = 0
        self._held = tuple(np.empty(0, np.int64) for _ in range(3))
        """Vertices, original ids and in-degrees, each with room for more."""

    def add(self, vertices: np.ndarray) -> np.ndarray:
        """Append the new ones among `vertices` (int[k]). Returns the position of each of `vertices`: int32[k]."""
        known = self.count
        positions = np.empty(len(vertices), np.int32)

        # Make room; bases start again from 0 where int32 would overflow.
        capacity = min(known + len(vertices), self._topology.vertices)
        self._reserve(capacity, known)
        if self._base + capacity > _MOST:
            self._start_over()
        self._end = self._base + capacity

        self.count = int(number(vertices, self._place, self._base, self._held[0], known, positions))
        self._look_up(known, self.count)
        return positions

    def put(self, vertices: np.ndarray) -> None:
        """Hold `vertices` (int64[k], repeats allowed) instead, without positions. `clear` is not needed after."""
        self._reserve(len(vertices), 0)
        self._held[0][: len(vertices)] = vertices
        self._look_up(0, len(vertices))

    def first(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The first `count` vertices, their original ids and their in-degrees, int64[count] each: views."""
        src, original, degree = self._held
        return src[:count], original[:count], degree[:count]

    def clear(self) -> None:
        """Forget all vertices."""
        self._base = self._end
        self.count = 0

    def _start_over(self) -> None:
        """Let bases start from 0 again."""
        self._base = 0
        self._place.fill(-1)
        self._place[self._held[0][: self.count]] = np.arange(self.count)

    def _reserve(self, capacity: int, kept: int) -> None:
        src, original, degree = self._held
        self._held = (grown(src, capacity, kept), grown(original, capacity, kept), grown(degree, capacity, kept))

    def _look_up(self, first: int, end: int) -> None:
        """Look up the original ids and in-degrees of the vertices at positions first..end-1."""
        topology, held = self._topology, self._held

        def work(_: int, first: int, end: int) -> None:
            look_up(topology.indptr, topology.original_id, held[0], first, end, *held[1:])

        self._threads.share(first, end, work)
