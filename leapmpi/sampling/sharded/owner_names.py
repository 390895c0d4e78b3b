"""Original ids of vertices from the ranks that own them, so that no rank opens the parts of others.

Sources of lists get their in-degrees with them; vertices to train and to score do not.
"""

from __future__ import annotations

from collections.abc import Callable
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

    def with_degrees(own: np.ndarray) -> np.ndarray:
        numbers = shard.own_numbers(own)
        return np.stack((shard.own.original_id[numbers], shard.own.degree(numbers)), axis=1)

    names = _by_owner(shard.outside.astype(np.int64), with_degrees, communicator, rank_offsets)
    return with_names(shard, *names.T.copy())


def names_by_owner(
    ids: np.ndarray, shard: TopologyShard, communicator: Communicator, rank_offsets: np.ndarray
) -> np.ndarray:
    """Return the original id of each of `ids`, int64[k], of any ranks: int64[k]. Collective."""

    def original(own: np.ndarray) -> np.ndarray:
        return shard.own.original_id[shard.own_numbers(own)][:, None]

    return _by_owner(ids, original, communicator, rank_offsets)[:, 0]


def _by_owner(
    ids: np.ndarray,
    names: Callable[[np.ndarray], np.ndarray],
    communicator: Communicator,
    rank_offsets: np.ndarray,
) -> np.ndarray:
    """Return the rows of `ids`, int64[k], of any ranks: int64[k, columns]. Collective.

    names: own vertices int64[n] -> their rows int64[n, columns].
    """
    rank, size = communicator.rank, communicator.size
    # In ascending order, those of an owner are adjacent.
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    bounds = np.searchsorted(ids, rank_offsets)
    own = slice(*bounds[rank : rank + 2])
    of_own = names(ids[own])
    found = np.empty((len(ids), of_own.shape[1]), np.int64)
    found[order[own]] = of_own
    wanted = np.diff(bounds)
    wanted[rank] = 0
    answered, codec = communicator.exchange_counts(wanted), IdCodec.home_ranks(rank_offsets)
    at_once = max(1, _ANSWERED // max(1, int(np.diff(rank_offsets).max())))
    # In each round a rank asks the next ranks, and answers those before it.
    for distance in range(1, size, at_once):
        distances = np.arange(distance, min(distance + at_once, size))
        mine, theirs = np.zeros((2, size), np.int64)
        owners, others = (np.sort((rank + each) % size) for each in (distances, -distances))
        mine[owners], theirs[others] = wanted[owners], answered[others]
        places = np.concatenate([np.arange(*bounds[owner : owner + 2]) for owner in owners.tolist()])
        requested, received = codec.empty(int(theirs.sum())), np.empty((len(places), found.shape[1]), np.int64)
        communicator.exchange(codec.encode(ids[places], mine), mine, requested, theirs, "control")
        communicator.exchange(names(codec.decode(requested, rank)), theirs, received, mine, "control")
        found[order[places]] = received
    return found
