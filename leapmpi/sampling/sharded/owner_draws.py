"""Draws of an owner for vertices whose lists it holds, in ids of the dataset."""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.hop_sampler import HopSampler
from leapmpi.sampling.sampler import Drawn
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.system.counter_rng import DrawKey


class OwnerDraws:
    """Draws of `sampler` from the lists of `shard` alone."""

    collective = False
    """Whether a draw involves other ranks, so that all of them draw at once."""

    def __init__(self, sampler: HopSampler, shard: TopologyShard) -> None:
        self.sampler, self.shard = sampler, shard

    def draw(self, key: DrawKey, hop: int, numbers: np.ndarray, alone: bool) -> Drawn:
        """Draw for own vertices `numbers` (int64[n]); neighbours are numbered as in the shard's lists. Local.

        alone: do not involve other ranks.
        """
        own = self.shard.own
        return self.sampler.drawn(key, hop, numbers, own.original_id[numbers], own.degree(numbers))

    def ids_of(self, neighbours: np.ndarray) -> np.ndarray:
        """Return the ids of drawn `neighbours`: int64[k]."""
        return self.shard.ids_of(neighbours)
