"""Edges known in an evaluation, of training or held back, among its candidates."""

from __future__ import annotations

import numpy as np

from leapmpi.dataset.edge_splits import EdgeSplits
from leapmpi.dataset.topology import Topology, places_among
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.system.jit import compiled


@compiled
def _mask_training(sources, order, first, end, listed_from, indptr, indices, out):
    """Mark training edges from sources[order], ascending, to vertices first..end-1 in `out` bool[k, end - first].

    The list of vertex v is number v - listed_from.
    """
    for v in range(first, end):
        for e in range(indptr[v - listed_from], indptr[v - listed_from + 1]):
            u = np.int64(indices[e])
            i = np.searchsorted(sources, u)
            while i < len(sources) and sources[i] == u:
                out[order[i], v - first] = True
                i += 1


class KnownEdges:
    """Edges of `topology` and of `splits`; with `both_ways` the latter hold in both directions.

    In a shard with numbered sources, only edges to the rank's own vertices are known.
    """

    def __init__(self, topology: Topology | TopologyShard, splits: EdgeSplits, both_ways: bool) -> None:
        self._topology = topology
        edges = np.concatenate([np.asarray(splits.val), np.asarray(splits.test)])
        if both_ways:
            edges = np.concatenate([edges, edges[:, ::-1]])
        self._held_back = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
        self._codes = np.unique(self._code(edges[:, 0], edges[:, 1]))

    def are_known(self, edges: np.ndarray, candidates: np.ndarray, replaced: int) -> np.ndarray:
        """Return bool[k]: whether `candidates` (int64[k]) as destinations of `edges` make edges of a split.

        Drawn candidates make no edges of training. `replaced` is the destination.
        """
        codes = self._code(edges[:, 0], candidates)
        return places_among(codes, self._codes) >= 0

    def mask(self, edges: np.ndarray, replaced: int, first: int, end: int) -> np.ndarray:
        """Return bool[k, end - first]: which vertices `first` to `end` are not candidates for each edge.

        edges: int64[k, 2]. Excluded are the source, and all known destinations of the source, including the edge's own.
        """
        out = np.zeros((len(edges), end - first), bool)
        sources, listed_from, lists = edges[:, 0], 0, self._topology
        if isinstance(lists, TopologyShard):
            sources, listed_from, lists = lists.numbers_of(sources), lists.first, lists.own
        order = np.argsort(sources, kind="stable")
        _mask_training(sources[order], order, first, end, listed_from, lists.indptr, lists.indices, out)
        inside = np.flatnonzero((edges[:, 0] >= first) & (edges[:, 0] < end))
        out[inside, edges[inside, 0] - first] = True

        # Held-back edges are few: look them up by source.
        begin, stop = (np.searchsorted(self._held_back[:, 0], edges[:, 0], side=side) for side in ("left", "right"))
        for row, (low, high) in enumerate(zip(begin, stop, strict=True)):
            destinations = self._held_back[low:high, 1]
            here = destinations[(destinations >= first) & (destinations < end)]
            out[row, here - first] = True
        return out

    def _code(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return one number for each pair, below 2**63 for up to 2**31 vertices."""
        return sources * np.int64(self._topology.vertices) + destinations
