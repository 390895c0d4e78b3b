"""Facts that determine how this rank will read rows. No communicator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.sampling.sampler import Sampler
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.system.counter_rng import DrawKey

DryRoots = tuple[DrawKey, np.ndarray, np.ndarray]
"""Key of an iteration of a dry run; the vertices that this rank draws for, and those of all ranks: int64, distinct."""


@dataclass(frozen=True)
class AccessPattern:
    """Facts that determine the rows that one rank reads in training."""

    topology: Topology | TopologyShard
    sampler: Sampler
    chances: Callable[[], np.ndarray]
    """() -> float64[n]: the chance of each vertex that this rank draws for it as a root of an iteration."""
    rank: int
    rank_offsets: np.ndarray
    """int64[ranks + 1]: the range of vertices of each rank."""
    iterations: int
    """Number of batches of an epoch."""
    dry_run: Callable[[int], Iterator[DryRoots]]
    """(epoch) -> the iterations of an epoch of random streams that training does not use. Collective with edges."""

    @property
    def local(self) -> slice:
        """The vertices that are this rank's own."""
        return slice(int(self.rank_offsets[self.rank]), int(self.rank_offsets[self.rank + 1]))
