"""Candidates for negatives: the vertices to draw from, and the check for existing edges."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from leapmpi.dataset.edge_splits import has_edge
from leapmpi.dataset.topology import Topology, places_among
from leapmpi.errors import ConfigError
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
    relation, replaced = 0, 1
    """The relation of the edges, and the column of the end that candidates replace."""

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


class HardLists:
    """Hard negatives: for an end of a relation's edges, the vertices that are candidates for the other end.

    triples: int64[k, 3], original ids of sources and destinations with the number of their relation between them.
    """

    def __init__(self, triples: np.ndarray, topology: Topology) -> None:
        """Raise ConfigError for an original id that no vertex of `topology` has."""
        ends, original = triples[:, [0, 2]], topology.original_id
        self._ends = places_among(ends, original, np.argsort(original))
        self._relations, self._topology = triples[:, 1], topology
        missing = np.flatnonzero(self._ends < 0)
        if len(missing):
            name = ends.flat[missing[0]]
            raise ConfigError(
                f"--negatives hard:FILE names vertex {name}, which the dataset lacks; leave out its lines"
            )

    def of(self, relation: int, replaced: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the lists for edges of `relation`, in which column `replaced` gets other vertices.

        That is int64[n], ascending: the vertices that stay; int64[n + 1]: where the list of each begins; int64[m]: the
        lists, by original id in any partition.
        """
        ends = np.unique(self._ends[self._relations == relation], axis=0)
        stay, found = ends[:, 1 - replaced], ends[:, replaced]
        order = np.lexsort((self._topology.original_id[found], stay))
        known, counts = np.unique(stay, return_counts=True)
        return known, running_total(counts), found[order]


def running_total(weights: np.ndarray) -> np.ndarray:
    """Return the sums of the first 0, 1, ... of `weights`: int64[n + 1]."""
    return np.concatenate([[0], np.cumsum(weights)])
