"""Facts that determine how this rank will read rows. Arithmetic, no communicator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.sampling.sampler import Sampler
from leapmpi.sampling.sharded.topology_shard import TopologyShard


@dataclass(frozen=True)
class AccessPattern:
    """Facts that determine the rows that one rank reads in training."""

    topology: Topology | TopologyShard
    sampler: Sampler
    train: np.ndarray
    """int64[t]: all training vertices."""
    share: np.ndarray
    """float64[t]: the chance that this rank draws for each of them, when it is in a batch."""
    rank: int
    rank_offsets: np.ndarray
    """int64[ranks + 1]: the range of vertices of each rank."""
    batch_size: int
    """Roots of an iteration over all ranks."""
    seed: int
    drawn_for: Callable[[np.ndarray, int, int], np.ndarray]
    """(batch, epoch, iteration) -> int64: the roots of the batch for which this rank draws; pure."""

    @property
    def local(self) -> slice:
        """The vertices that are this rank's own."""
        return slice(int(self.rank_offsets[self.rank]), int(self.rank_offsets[self.rank + 1]))
