"""Candidates: the vertices among which negatives are drawn, and which of them are no negatives after all."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from leapmpi.dataset.edge_splits import has_edge
from leapmpi.dataset.topology import Topology
from leapmpi.system.counter_rng import bounded
from leapmpi.system.jit import compiled

WeightedDraw = Callable[[np.ndarray], np.ndarray]
"""From random words uint64[k] to vertices int64[k]."""


@compiled
def _is_edge(sources, destinations, indptr, indices, original):
    """bool[k]: whether a candidate is no negative: its source itself, or an edge of the training graph."""
    out = np.empty(len(sources), np.bool_)
    for i in range(len(sources)):
        u, w = sources[i], destinations[i]
        out[i] = u == w or has_edge(u, w, indptr, indices, original)
    return out


@compiled
def scaled(words, end):
    """int64[k]: each of `words` (uint64[k]) as a number in [0, end)."""
    out = np.empty(len(words), np.int64)
    for i in range(len(words)):
        out[i] = np.int64(bounded(words[i], np.uint64(end)))
    return out


def range_of(numbers: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """int64[k]: in which of the ranges that begin at `starts` (int64[r + 1], with the end) each of `numbers` lies."""
    return np.searchsorted(starts, numbers, side="right") - 1


class Candidates:
    """All vertices of a whole topology."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    @property
    def vertices(self) -> int:
        """How many vertices the graph has."""
        return self.topology.vertices

    def names(self, edges: np.ndarray) -> np.ndarray:
        """int64[k, 2]: the original ids of the ends of `edges` (int64[k, 2])."""
        return self.topology.original_id[edges]

    def vertices_at(self, places: np.ndarray) -> np.ndarray:
        """int64[k]: the vertices at `places` in the order of original ids, so that no partition matters."""
        return self._order[places]

    def are_edges(self, sources: np.ndarray, found: np.ndarray, names: np.ndarray) -> np.ndarray:
        """bool[k]: whether `found` are no negatives of `sources` (int64[k]), whose original ids are `names`."""
        return _is_edge(sources, found, self.topology.indptr, self.topology.indices, self.topology.original_id)

    def by_degree(self, weigh: Callable[[np.ndarray], np.ndarray]) -> WeightedDraw:
        """Draws with chances proportional to weigh(in-degrees), int64; all alike where all of them weigh nothing."""
        weights = weigh(np.diff(self.topology.indptr))
        total = running_total(weights[self._order])

        def draw(words: np.ndarray) -> np.ndarray:
            if total[-1] == 0:
                return self.vertices_at(scaled(words, self.vertices))
            return self.vertices_at(np.searchsorted(total, scaled(words, total[-1]), side="right") - 1)

        return draw

    @cached_property
    def _order(self) -> np.ndarray:
        """int64[n]: the vertices by original id."""
        return np.argsort(self.topology.original_id)


def running_total(weights: np.ndarray) -> np.ndarray:
    """int64[n + 1]: what the first 0, 1, ... of `weights` add up to."""
    return np.concatenate([[0], np.cumsum(weights)])
