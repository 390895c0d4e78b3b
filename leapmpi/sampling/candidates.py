"""Candidates for negatives: the vertices to draw from, and the check for existing edges."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from leapmpi.dataset.edge_splits import has_edge
from leapmpi.dataset.topology import Topology
from leapmpi.system.counter_rng import bounded
from leapmpi.system.jit import compiled

WeightedDraw = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Draw from random words uint64[k] and edge sources int64[k] to vertices int64[k]."""


@compiled
def _is_edge(sources, destinations, indptr, indices, original):
    """Return bool[k]: whether a candidate is no negative, being its source itself or a training edge."""
    out = np.empty(len(sources), np.bool_)
    for i in range(len(sources)):
        u, w = sources[i], destinations[i]
        out[i] = u == w or has_edge(u, w, indptr, indices, original)
    return out


@compiled
def scaled(words, first, end):
    """Return each of `words` (uint64[k]) as a number in [first[i], end[i]): int64[k]."""
    out = np.empty(len(words), np.int64)
    for i in range(len(words)):
        out[i] = first[i] + np.int64(bounded(words[i], np.uint64(end[i] - first[i])))
    return out


def range_of(numbers: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the range of each of `numbers`, int64[k]; ranges begin at `starts` (int64[r + 1], with the end)."""
    return np.searchsorted(starts, numbers, side="right") - 1


class Candidates:
    """Vertices of a whole topology: all of them, or only those owned by the rank of an edge's source."""

    def __init__(self, topology: Topology, rank_offsets: np.ndarray | None = None) -> None:
        """Take `rank_offsets` int64[ranks + 1] if candidates have the owner of the source, else None."""
        self.topology, self.rank_offsets = topology, rank_offsets

    @property
    def vertices(self) -> int:
        """Number of vertices of the graph."""
        return self.topology.vertices

    def names(self, edges: np.ndarray) -> np.ndarray:
        """Return the original ids of the ends of `edges` (int64[k, 2]): int64[k, 2]."""
        return self.topology.original_id[edges]

    def homes(self, sources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return first and end vertex, int64[k] each, of the range that each of `sources` draws from."""
        if self.rank_offsets is None:
            return np.zeros(len(sources), np.int64), np.full(len(sources), self.vertices)
        home = range_of(sources, self.rank_offsets)
        return self.rank_offsets[home], self.rank_offsets[home + 1]

    def vertices_at(self, places: np.ndarray) -> np.ndarray:
        """Return the vertices at `places`, int64[k]: by original id, or by number among the owner's."""
        return places if self._order is None else self._order[places]

    def are_edges(self, sources: np.ndarray, found: np.ndarray, names: np.ndarray) -> np.ndarray:
        """Return bool[k]: whether `found` are no negatives of `sources` (int64[k]), with original ids `names`."""
        return _is_edge(sources, found, self.topology.indptr, self.topology.indices, self.topology.original_id)

    def by_degree(self, weigh: Callable[[np.ndarray], np.ndarray]) -> WeightedDraw:
        """Return draws with chances proportional to weigh(in-degrees), int64; uniform if all weights are 0."""
        weights = weigh(np.diff(self.topology.indptr))
        total = running_total(weights if self._order is None else weights[self._order])

        def draw(words: np.ndarray, sources: np.ndarray) -> np.ndarray:
            low, high = self.homes(sources)
            hit, span = total[low], total[high] - total[low]
            places = np.searchsorted(total, scaled(words, hit, hit + np.maximum(1, span)), side="right") - 1
            return self.vertices_at(np.where(span > 0, places, scaled(words, low, high)))

        return draw

    @cached_property
    def _order(self) -> np.ndarray | None:
        """Vertices by original id, int64[n]; None if candidates have the owner of the source."""
        return np.argsort(self.topology.original_id) if self.rank_offsets is None else None


def running_total(weights: np.ndarray) -> np.ndarray:
    """Return the sums of the first 0, 1, ... of `weights`: int64[n + 1]."""
    return np.concatenate([[0], np.cumsum(weights)])
