"""Expected reads of own lists and rows by all ranks, where each rank holds the lists of its own vertices.

The analysis is that of a whole topology (expected_reads.py). At each hop a rank spreads the chances of its vertices
along their lists, and the owners of the sources add up what all ranks found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leapmpi.features.expected_reads import spread, summed_by_owner
from leapmpi.sampling.sharded.topology_shard import TopologyShard

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator


class SharedReads(NamedTuple):
    """Chances that an iteration of all ranks reads each own list, and each own row: float64[own vertices]."""

    lists: np.ndarray
    rows: np.ndarray


def shared_reads(
    shard: TopologyShard,
    communicator: Communicator,
    rank_offsets: np.ndarray,
    roots: np.ndarray,
    fanouts: tuple[int, ...],
) -> SharedReads:
    """Return how often an iteration reads what this rank holds. Collective.

    rank_offsets: int64[ranks + 1]; roots: float64[own vertices], the chance of each to be a root of the iteration;
    fanouts: from the root outward, -1 for all.
    """
    own, lists, chance, drew = shard.own, roots, roots, np.zeros(len(roots))
    for fanout in fanouts:
        # A vertex draws at the last hop if it was reached before it.
        lists, left_out = chance, np.zeros(shard.vertices if shard.outside is None else own.numbered)
        spread(own.indptr, own.indices, chance, fanout, drew, left_out)
        if shard.outside is not None:
            found, count = np.zeros(shard.vertices), len(roots)
            found[shard.first : shard.end], found[shard.outside] = left_out[:count], left_out[count:]
            left_out = found
        missed = summed_by_owner(left_out, rank_offsets, communicator)
        chance = -np.expm1(missed + np.log1p(-roots, where=roots < 1, out=np.full(len(roots), -np.inf)))
    return SharedReads(lists, chance)
