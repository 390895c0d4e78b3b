"""Candidates for negatives: the vertices to draw from, and the check for existing edges."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from leapmpi.dataset.edge_splits import has_edge
from leapmpi.dataset.topology import Topology
from leapmpi.system.counter_rng import bounded
from leapmpi.system.jit import compiled

WeightedDraw = Callable[[np.ndarray], np.ndarray]
"""Draw from random words uint64[k] to vertices int64[k]."""


@compiled
def _is_edge(sources, destinations, indptr, indices, original):
    """Return bool[k]: whether a candidate is not a negative, being its source itself or a training edge."""
    out = np.empty(len(sources), np.bool_)
    for i in range(len(sources)):
        u, w = sources[i], destinations[i]
        out[i] = u == w or has_edge(u, w, indptr, indices, original)
    return out


@compiled
def scaled(words, end):
    """Return each of `words` (uint64[k]) as a number in [0, end): int64[k]."""
    out = np.empty(len(words), np.int64)
    for i in range(len(words)):
        out[i] = np.int64(bounded(words[i], np.uint64(end)))
    return out


def range_of(numbers: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the range of each of `numbers`, int64[k]; ranges begin at `starts` (int64[r + 1], with the end)."""
    return np.searchsorted(starts, numbers, side="right") - 1


class Candidates:
    """All vertices of a whole topology."""

    salt: int | None = None
    """A number that keeps these draws apart from others of the same edges."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    @property
    def vertices(self) -> int:
        """Number of vertices of the graph."""
        return self.topology.vertices

    def names(self, edges: np.ndarray) -> np.ndarray:
        """Return the original ids of the ends of `edges` (int64[k, 2]): int64[k, 2]."""
        return self.topology.original_id[edges]

    def vertices_at(self, places: np.ndarray) -> np.ndarray:
        """Return the vertices at `places` in the order of original ids, which no partition changes: int64[k]."""
        return self._order[places]

    def are_edges(self, sources: np.ndarray, found: np.ndarray, names: np.ndarray) -> np.ndarray:
        """Return bool[k]: whether `found` are not negatives of `sources` (int64[k]), with original ids `names`."""
        return _is_edge(sources, found, self.topology.indptr, self.topology.indices, self.topology.original_id)

    def by_degree(self, weigh: Callable[[np.ndarray], np.ndarray]) -> WeightedDraw:
        """Return draws with chances proportional to weigh(in-degrees), int64; uniform if all weights are 0."""
        weights = weigh(np.diff(self.topology.indptr))
        total = running_total(weights[self._order])

        def draw(words: np.ndarray) -> np.ndarray:
            if total[-1] == 0:
                return self.vertices_at(scaled(words, self.vertices))
            return self.vertices_at(np.searchsorted(total, scaled(words, total[-1]), side="right") - 1)

        return draw

    @cached_property
    def _order(self) -> np.ndarray:
        """Vertices by original id, int64[n]."""
        return np.argsort(self.topology.original_id)


def running_total(weights: np.ndarray) -> np.ndarray:
    """Return the sums of the first 0, 1, ... of `weights`: int64[n + 1]."""
    return np.concatenate([[0], np.cumsum(weights)])
