"""Names of the sources of a shard's lists: their owners say them, so that no rank opens the parts of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.sampling.sharded.topology_shard import TopologyShard, with_names

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator

_ANSWERED = 1 << 18
"""Vertices that a rank names at a time; more only where one other rank reads more of them."""


def name_sources(shard: TopologyShard, communicator: Communicator, rank_offsets: np.ndarray) -> TopologyShard:
    """Return `shard`, whose sources are numbered, with original ids and in-degrees of those of other ranks. Collective.

    rank_offsets: int64[ranks + 1], first vertex of each rank.
    """
    assert shard.outside is not None, "sources are numbered"
    rank, size = communicator.rank, communicator.size
    # Sources ascend, so those of an owner are adjacent.
    bounds = np.searchsorted(shard.outside, rank_offsets)
    wanted = np.diff(bounds)
    answered = communicator.exchange_counts(wanted)
    codec, names = IdCodec.home_ranks(rank_offsets), np.empty((len(shard.outside), 2), np.int64)
    at_once = max(1, _ANSWERED // max(1, int(np.diff(rank_offsets).max())))
    # In each round a rank asks the next ranks, and answers those before it.
    for distance in range(1, size, at_once):
        distances = np.arange(distance, min(distance + at_once, size))
        mine, theirs = np.zeros((2, size), np.int64)
        owners, others = (np.sort((rank + each) % size) for each in (distances, -distances))
        mine[owners], theirs[others] = wanted[owners], answered[others]
        places = np.concatenate([np.arange(*bounds[owner : owner + 2]) for owner in owners.tolist()])
        ids = codec.empty(int(theirs.sum()))
        asked = codec.encode(shard.outside[places].astype(np.int64), mine)
        communicator.exchange(asked, mine, ids, theirs, "control")
        own, received = shard.own_numbers(codec.decode(ids, rank)), np.empty((len(places), 2), np.int64)
        answers = np.stack((shard.own.original_id[own], shard.own.degree(own)), axis=1)
        communicator.exchange(answers, theirs, received, mine, "control")
        names[places] = received
    return with_names(shard, *names.T.copy())
