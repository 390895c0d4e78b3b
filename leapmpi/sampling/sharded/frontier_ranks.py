"""Exchange between ranks for samplers that read the frontier of a whole batch, with a sharded topology.

A source may be on lists of several ranks: all ranks gather each rank's facts about it, and reach the same result. Drawn
sources go to their owners, as destinations of the next hop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.sampling.candidates import range_of
from leapmpi.sampling.sharded.shared_candidates import id_type
from leapmpi.sampling.sharded.topology_shard import TopologyShard

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator

KIND = "topology"


class FrontierRanks:
    """All ranks from the view of one. Vertices have their numbers in its shard; sources are named."""

    def __init__(self, shard: TopologyShard, communicator: Communicator, rank_offsets: np.ndarray) -> None:
        """Take `rank_offsets`: int64[ranks + 1]."""
        self._shard, self._communicator, self._rank_offsets = shard, communicator, rank_offsets
        self._id_codec = IdCodec.home_ranks(rank_offsets)

    @property
    def vertices(self) -> int:
        """Number of vertices of all ranks."""
        return self._shard.vertices

    def own(self, ids: np.ndarray) -> np.ndarray:
        """Return the own numbers, int64 ascending, of those of `ids` (int64[k]) that this rank owns. Local."""
        shard = self._shard
        return np.unique(shard.own_numbers(ids[(ids >= shard.first) & (ids < shard.end)]))

    def gathered(self, numbers: np.ndarray, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the `numbers` (int64[k]) of all ranks, in order of rank, and their `columns`, eight bytes each.

        Numbers are -1 for vertices that this rank neither owns nor lists. Collective.
        """
        network = self._communicator
        counts = network.all_gather_rows(np.array([len(numbers)]))[:, 0].copy()
        ids = self._shard.ids_of(numbers).astype(id_type(self.vertices))
        every = network.all_gather_pieces(ids, counts, KIND).astype(np.int64)
        return self._shard.numbers_of(every), *(network.all_gather_pieces(each, counts, KIND) for each in columns)

    def reached(self, frontier: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """Return own numbers, int64 ascending, of `frontier` and of the vertices `drawn` (int64[k]) on all ranks.

        Collective.
        """
        network, shard = self._communicator, self._shard
        ids = shard.ids_of(np.unique(drawn))
        home = range_of(ids, self._rank_offsets)
        order = np.argsort(home, kind="stable")
        order = order[home[order] != network.rank]
        counts = np.bincount(home[order], minlength=network.size).astype(np.int64)
        theirs = network.exchange_counts(counts)
        received = self._id_codec.empty(int(theirs.sum()))
        network.exchange(self._id_codec.encode(ids[order], counts), counts, received, theirs, KIND)
        named = self._id_codec.decode(received, network.rank)
        return np.unique(np.concatenate((frontier, self.own(ids), shard.own_numbers(named))))
