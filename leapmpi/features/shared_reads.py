"""Expected reads of own lists and rows by all ranks, where each rank holds the lists of its own vertices.

The analysis is that of a whole topology (expected_reads.py). At each hop a rank spreads the chances of its vertices
along their lists, and the owners of the sources add up what all ranks found. A rank holds numbers of its own vertices
and of the distinct sources of its lists.
"""

from __future__ import annotations

from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.features.expected_reads import READS_BYTES, Reads, reads_by_hops, spread
from leapmpi.sampling.sharded.id_set import IdSet
from leapmpi.sampling.sharded.topology_shard import TopologyShard

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator

_EDGES = 1 << 20
"""Edges whose sources are numbered at a time, at most."""

_RECEIVED = 1 << 18
"""Numbers that an owner receives at a time, at most."""

_SOURCE_BYTES, _EDGE_BYTES, _RECEIVED_BYTES = 16, 8, 40
"""Most bytes for a remote source: id and number; for an edge that is numbered; for a number sent and one received."""


def shared_reads(
    shard: TopologyShard,
    communicator: Communicator,
    rank_offsets: np.ndarray,
    roots: np.ndarray,
    fanouts: tuple[int, ...],
) -> Reads:
    """Return how often an iteration of all ranks reads what this rank holds: float64[own vertices]. Collective.

    rank_offsets: int64[ranks + 1]; roots: float64[own vertices], the chance of each to be a root of the iteration;
    fanouts: from the root outward, -1 for all.
    """
    return reads_by_hops(roots, fanouts, _SharedHops(shard, communicator, rank_offsets).spread)


def shared_reads_bytes(own: int, edges: int, vertices: int) -> int:
    """Return the most bytes that `shared_reads` takes for lists of `own` vertices with `edges` edges. Local.

    vertices: those of the graph. Found before any list is read, so that every edge may have a source of its own.
    """
    remote = min(edges, vertices - own)
    pieces = _EDGE_BYTES * min(edges, _EDGES) + _RECEIVED_BYTES * min(vertices, _RECEIVED)
    return READS_BYTES * own + _SOURCE_BYTES * remote + vertices // 4 + pieces


class _SharedHops:
    """Sources of a shard's lists, and the sums over ranks of numbers of them. Collective to make."""

    def __init__(self, shard: TopologyShard, communicator: Communicator, rank_offsets: np.ndarray) -> None:
        self._shard, self._communicator = shard, communicator
        own = shard.own
        self._set: IdSet | None = None
        """Numbers of the sources, where the lists hold ids."""
        if shard.outside is not None:
            self._outside = shard.outside
        else:
            self._set = IdSet(shard.vertices, shard.first, shard.end)
            self._set.add(own.indices)
            self._outside = self._set.listed(own.indices.dtype)
        # A message is about a piece of the vertices of its receiver, or about those of several receivers.
        longest = max(1, int(np.diff(rank_offsets).max()))
        pieces, self._at_once = -(-longest // _RECEIVED), max(1, _RECEIVED // longest)
        cuts = rank_offsets[:-1, None] + np.arange(pieces + 1) * _RECEIVED
        self._bounds = np.searchsorted(self._outside, np.minimum(cuts, rank_offsets[1:, None]))
        self._counts = np.diff(self._bounds, axis=1)
        self._theirs = communicator.exchange_counts(self._counts)
        self._codec = IdCodec.home_ranks(rank_offsets)

    def spread(self, included: np.ndarray, fanout: int, drew: np.ndarray, left_out: np.ndarray) -> None:
        """Spread the chances along the lists of all ranks, as `expected_reads.spread` does. Collective.

        All arrays are of own vertices.
        """
        own = self._shard.own
        starts, found = own.indptr[: len(included) + 1], np.zeros(len(included) + len(self._outside))
        cuts = np.append(np.arange(0, int(starts[-1]), _EDGES), starts[-1])
        # The lists with edges in each piece; a piece may begin or end within a list.
        begins, ends = np.searchsorted(starts, cuts[:-1], "right") - 1, np.searchsorted(starts, cuts[1:])
        for (low, high), first, end in zip(pairwise(cuts.tolist()), begins.tolist(), ends.tolist(), strict=True):
            part, indices = slice(first, end), own.indices[low:high]
            if self._set is not None:
                # Lists may be in a file, and those in memory are read by draws: numbers are of copies.
                indices = indices.copy()
                self._set.renumber(indices)
            spread(starts[first : end + 1], low, indices, included[part], fanout, drew[part], found)
        left_out += found[: len(included)]
        self._add_up(found[len(included) :], left_out)

    def _add_up(self, values: np.ndarray, left_out: np.ndarray) -> None:
        """Add `values` (float64[k], of outside sources) to `left_out` (float64[own vertices]) of their owners."""
        network = self._communicator
        rounds = product(range(1, network.size, self._at_once), range(self._counts.shape[1]))
        # In each round a rank sends to the next ranks, and receives from those before it.
        for distance, piece in rounds:
            distances = np.arange(distance, min(distance + self._at_once, network.size))
            to, senders = (np.sort((network.rank + each) % network.size) for each in (distances, -distances))
            mine, theirs = np.zeros((2, network.size), np.int64)
            mine[to], theirs[senders] = self._counts[to, piece], self._theirs[senders, piece]
            taken = np.concatenate([np.arange(*self._bounds[rank, piece : piece + 2]) for rank in to.tolist()])
            ids, numbers = self._codec.empty(int(theirs.sum())), np.empty(int(theirs.sum()))
            named = self._codec.encode(self._outside[taken].astype(np.int64), mine)
            exchanges = [(named, mine, ids, theirs, "control"), (values[taken], mine, numbers, theirs, "control")]
            network.start_exchanges(exchanges)()
            np.add.at(left_out, self._codec.decode(ids, network.rank) - self._shard.first, numbers)
