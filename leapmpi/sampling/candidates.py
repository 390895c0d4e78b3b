"""Candidates: the vertices among which negatives are drawn, and which of them are no negatives after all."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from leapmpi.dataset.edge_splits import has_edge
from leapmpi.dataset.topology import Topology
from leapmpi.system.counter_rng import bounded
from leapmpi.system.jit import compiled

WeightedDraw = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From random words uint64[k] and the sources of their edges int64[k] to vertices int64[k]."""


@compiled
def _is_edge(sources, destinations, indptr, indices, original):
    """bool[k]: whether a candidate is no negative: its source itself, or an edge of the training graph."""
    out = np.empty(len(sources), np.bool_)
    for i in range(len(sources)):
        u, w = sources[i], destinations[i]
        out[i] = u == w or has_edge(u, w, indptr, indices, original)
    return out


@compiled
def scaled(words, first, end):
    """int64[k]: each of `words` (uint64[k]) as a number in [first[i], end[i])."""
    out = np.empty(len(words), np.int64)
    for i in range(len(words)):
        out[i] = first[i] + np.int64(bounded(words[i], np.uint64(end[i] - first[i])))
    return out


def range_of(numbers: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """int64[k]: in which of the ranges that begin at `starts` (int64[r + 1], with the end) each of `numbers` lies."""
    return np.searchsorted(starts, numbers, side="right") - 1


class Candidates:
    """Vertices of a whole topology: all, or where they are drawn at home those at home with the source of an edge."""

    def __init__(self, topology: Topology, rank_offsets: np.ndarray | None = None) -> None:
        """`rank_offsets` int64[ranks + 1] where candidates are drawn at home, else None."""
        self.topology, self.rank_offsets = topology, rank_offsets

    @property
    def vertices(self) -> int:
        """How many vertices the graph has."""
        return self.topology.vertices

    def names(self, edges: np.ndarray) -> np.ndarray:
        """int64[k, 2]: the original ids of the ends of `edges` (int64[k, 2])."""
        return self.topology.original_id[edges]

    def homes(self, sources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First vertex and end, int64[k] each, of the ranges that each of `sources` draws from."""
        if self.rank_offsets is None:
            return np.zeros(len(sources), np.int64), np.full(len(sources), self.vertices)
        home = range_of(sources, self.rank_offsets)
        return self.rank_offsets[home], self.rank_offsets[home + 1]

    def vertices_at(self, places: np.ndarray) -> np.ndarray:
        """int64[k]: the vertices at `places`: by original id, so that no partition matters; at home by number."""
        return places if self._order is None else self._order[places]

    def are_edges(self, sources: np.ndarray, found: np.ndarray, names: np.ndarray) -> np.ndarray:
        """bool[k]: whether `found` are no negatives of `sources` (int64[k]), whose original ids are `names`."""
        return _is_edge(sources, found, self.topology.indptr, self.topology.indices, self.topology.original_id)

    def by_degree(self, weigh: Callable[[np.ndarray], np.ndarray]) -> WeightedDraw:
        """Draws with chances proportional to weigh(in-degrees), int64; all alike where all of them weigh nothing."""
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
        """int64[n]: the vertices by original id, as they are drawn anywhere; None at home, where numbers serve."""
        return np.argsort(self.topology.original_id) if self.rank_offsets is None else None


def running_total(weights: np.ndarray) -> np.ndarray:
    """int64[n + 1]: what the first 0, 1, ... of `weights` add up to."""
    return np.concatenate([[0], np.cumsum(weights)])
