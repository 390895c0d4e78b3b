"""The vertices that a sample has reached so far, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leapmpi.sampling.relabel import describe, grown, number
from leapmpi.sampling.workers import SamplerThreads

if TYPE_CHECKING:
    from leapmpi.dataset.topology import Topology


_MOST = np.iinfo(np.int32).max


class Frontier:
    """Vertices in order of first appearance, with their original ids and in-degrees; `count` of them.

    Keeps working memory of 4 bytes per vertex of the graph, and of the largest sample so far. Places are numbered on
    from sample to sample, so that those of earlier ones, all below `_base`, need not be cleared away.
    """

    def __init__(self, topology: Topology, team: SamplerThreads | None = None) -> None:
        self.count = 0
        self._topology, self._team = topology, team or SamplerThreads(1)
        self._place = np.full(topology.vertices, -1, np.int32)
        self._base = self._end = 0
        self._held = tuple(np.empty(0, np.int64) for _ in range(3))

    def add(self, vertices: np.ndarray) -> np.ndarray:
        """Append the new ones of `vertices` (int[k]); int32[k]: the place of each."""
        known, places = self.count, np.empty(len(vertices), np.int32)
        capacity = min(known + len(vertices), self._topology.vertices)
        self._reserve(capacity, known)
        if self._base + capacity > _MOST:
            self._start_over()
        self._end = self._base + capacity
        self.count = int(number(vertices, self._place, self._base, self._held[0], known, places))
        self._describe(known, self.count)
        return places

    def put(self, vertices: np.ndarray) -> None:
        """Hold `vertices` (int64[k]) instead, repeats and all. `clear` is not needed after."""
        self._reserve(len(vertices), 0)
        self._held[0][: len(vertices)] = vertices
        self._describe(0, len(vertices))

    def first(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The first `count` vertices, their original ids and their in-degrees, int64[count] each: views."""
        src, original, degree = self._held
        return src[:count], original[:count], degree[:count]

    def clear(self) -> None:
        """Forget all."""
        self._base, self.count = self._end, 0

    def _start_over(self) -> None:
        """Number places from 0 again."""
        self._base = 0
        self._place.fill(-1)
        self._place[self._held[0][: self.count]] = np.arange(self.count)

    def _reserve(self, capacity: int, kept: int) -> None:
        src, original, degree = self._held
        self._held = (grown(src, capacity, kept), grown(original, capacity, kept), grown(degree, capacity, kept))

    def _describe(self, first: int, end: int) -> None:
        topology, held = self._topology, self._held

        def look_up(_: int, first: int, end: int) -> None:
            describe(topology.indptr, topology.original_id, held[0], first, end, *held[1:])

        self._team.share(first, end, look_up)
