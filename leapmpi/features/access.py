"""What a cache policy may use: how this rank will read rows. Arithmetic, no communicator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.registry import Registry
from leapmpi.sampling.sampler import Sampler

POLICIES = Registry("cache policy", "leapmpi.features.policies")


@dataclass(frozen=True)
class AccessPattern:
    """What determines the rows that one rank reads in training."""

    topology: Topology
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
    balances: bool = False
    """Whether the schedule moves roots away from their home rank to balance the load."""

    @property
    def local(self) -> slice:
        """The vertices that are this rank's own."""
        return slice(int(self.rank_offsets[self.rank]), int(self.rank_offsets[self.rank + 1]))


def choose(access: AccessPattern, policy: str, count: int) -> np.ndarray:
    """The remote vertices with the highest scores by the policy of that name: int64, ascending, at most `count`.

    Vertices with score 0 are never read, and left out; of equal scores the lower ids come first. Raises ConfigError
    for an unknown policy.
    """
    scores = POLICIES.load(policy).POLICY(access)
    scores[access.local] = 0
    useful = np.flatnonzero(scores > 0)
    best = np.argsort(-scores[useful], kind="stable")[:count]
    return np.sort(useful[best])
