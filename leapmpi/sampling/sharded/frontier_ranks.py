"""What samplers that read the frontier of a whole batch tell other ranks, where each holds its own vertices' lists.

A source may be on lists of several ranks: what each knows of it goes to all, by which all find the same. Drawn sources
go to their owners, for whom they are destinations of the next hop.
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
    """The ranks, as one of them sees them. Vertices are called by their numbers in its shard; sources are named."""

    def __init__(self, shard: TopologyShard, communicator: Communicator, rank_offsets: np.ndarray) -> None:
        """rank_offsets: int64[ranks + 1]."""
        self._shard, self._communicator, self._rank_offsets = shard, communicator, rank_offsets
        self._id_codec = IdCodec.home_ranks(rank_offsets)

    @property
    def vertices(self) -> int:
        """How many vertices all ranks have."""
        return self._shard.vertices

    def own(self, ids: np.ndarray) -> np.ndarray:
        """int64, ascending: the own numbers of those of `ids` (int64[k]) that are at home here. Local."""
        shard = self._shard
        return np.unique(shard.own_numbers(ids[(ids >= shard.first) & (ids < shard.end)]))

    def gathered(self, numbers: np.ndarray, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
        """The `numbers` (int64[k]) of all ranks, rank after rank, and their `columns`, eight bytes each. Collective.

        Numbers are -1 where no list here has the vertex, and it is not at home here.
        """
        network = self._communicator
        counts = network.all_gather_rows(np.array([len(numbers)]))[:, 0].copy()
        ids = self._shard.ids_of(numbers).astype(id_type(self.vertices))
        every = network.all_gather_pieces(ids, counts, KIND).astype(np.int64)
        return self._shard.numbers_of(every), *(network.all_gather_pieces(each, counts, KIND) for each in columns)

    def reached(self, frontier: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """int64, ascending: own numbers of `frontier`, and of what all ranks have `drawn` (int64[k]). Collective."""
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
