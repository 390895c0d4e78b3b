"""Candidates for negatives with a sharded topology: all ranks make the same draws, owners resolve them.

The rank that holds a position in the order of original ids knows its vertex. The rank that holds the vertex's list
knows whether the edge's source is on it. All ranks gather both, since all of them plan the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from leapmpi.sampling.candidates import Candidates, WeightedDraw, range_of, running_total, scaled
from leapmpi.sampling.sharded.shared_order import OriginalOrder
from leapmpi.sampling.sharded.topology_shard import NoWholeTopology, TopologyShard
from leapmpi.system.jit import compiled

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator

KIND = "topology"
FLAG = np.dtype(np.uint8)
"""Type of the flags for existing edges."""


def id_type(vertices: int) -> np.dtype:
    """Return the type of ids on the wire, for so many vertices."""
    return np.dtype(np.int32 if vertices <= 1 << 31 else np.int64)


@compiled
def _is_listed(names, destinations, indptr, indices, original):
    """Return bool[k]: whether the source of original id names[i] is on the list of destinations[i], by bisection."""
    out = np.empty(len(names), np.bool_)
    for i in range(len(names)):
        low, end = indptr[destinations[i]], indptr[destinations[i] + 1]
        high = end
        while low < high:
            middle = (low + high) // 2
            if original[indices[middle]] < names[i]:
                low = middle + 1
            else:
                high = middle
        out[i] = low < end and original[indices[low]] == names[i]
    return out


class SharedCandidates(Candidates):
    """Vertices of a sharded topology with named sources. Draws are collective; all ranks make the same calls."""

    def __init__(self, shard: TopologyShard, communicator: Communicator, rank_offsets: np.ndarray) -> None:
        """Take rank_offsets: int64[ranks + 1]. Local."""
        self._shard, self._communicator, self._homes = shard, communicator, rank_offsets
        self._id = id_type(shard.vertices)
        self._order_of_all: OriginalOrder | None = None

    @property
    def vertices(self) -> int:
        return self._shard.vertices

    @property
    def topology(self) -> NoReturn:  # type: ignore[override]
        """Raise NoWholeTopology."""
        raise NoWholeTopology(
            "link.negatives: these negatives read the whole topology, but ranks hold only parts; use uniform, "
            "degree or in-batch, or --topology node"
        )

    def names(self, edges: np.ndarray) -> NoReturn:
        raise ValueError("original ids of ends are on their owners; the caller must pass them")

    def vertices_at(self, places: np.ndarray) -> np.ndarray:
        """Return vertices; see Candidates.vertices_at. Collective."""
        ids, bounds, rank = self._shared.ids, self._shared.bounds, self._communicator.rank
        return self._gathered(range_of(places, bounds), lambda mine: ids[places[mine] - bounds[rank]], self._id)

    def are_edges(self, sources: np.ndarray, found: np.ndarray, names: np.ndarray) -> np.ndarray:
        """Check for edges; see Candidates.are_edges. Collective."""
        own = self._shard.own

        def listed(mine: np.ndarray) -> np.ndarray:
            numbers = self._shard.own_numbers(found[mine])
            return _is_listed(names[mine], numbers, own.indptr, own.indices, own.original_id)

        return (sources == found) | (self._gathered(range_of(found, self._homes), listed, FLAG) > 0)

    def by_degree(self, weigh: Callable[[np.ndarray], np.ndarray]) -> WeightedDraw:
        """Return draws; see Candidates.by_degree. The result is collective, this is not."""
        sums: list[np.ndarray] = []

        def draw(words: np.ndarray) -> np.ndarray:
            # Sum weights on first use, over this rank's slice of the order.
            if not sums:
                weights = weigh(self._shared.slice_of(np.diff(self._shard.own.indptr)))
                sums.append(running_total(weights))
                sums.append(running_total(self._communicator.all_gather_rows(sums[0][-1:])[:, 0]))
            own, total = sums

            # A number below the total selects a rank by the running sums of ranks, then a vertex.
            if total[-1] == 0:
                return self.vertices_at(scaled(words, self.vertices))
            hit, ids, rank = scaled(words, total[-1]), self._shared.ids, self._communicator.rank
            return self._gathered(
                range_of(hit, total),
                lambda mine: ids[np.searchsorted(own, hit[mine] - total[rank], side="right") - 1],
                self._id,
            )

        return draw

    @property
    def _shared(self) -> OriginalOrder:
        """Order of all vertices by original id, made on first use. Collective then."""
        if self._order_of_all is None:
            shard = self._shard
            own = shard.own.original_id[: shard.end - shard.first]
            self._order_of_all = OriginalOrder(own, shard.first, shard.vertices, self._communicator)
        return self._order_of_all

    def _gathered(self, holder: np.ndarray, find: Callable[[np.ndarray], np.ndarray], dtype: np.dtype) -> np.ndarray:
        """Return the values found by rank holder[i] (int64[k], the same on all ranks) for entry i: int64[k].

        Collective.

        find: from the positions of this rank's entries to their values, sent as `dtype`.
        """
        counts = np.bincount(holder, minlength=self._communicator.size)
        values = find(np.flatnonzero(holder == self._communicator.rank)).astype(dtype)
        found = np.empty(len(holder), np.int64)
        found[np.argsort(holder, kind="stable")] = self._communicator.all_gather_pieces(values, counts, KIND)
        return found
