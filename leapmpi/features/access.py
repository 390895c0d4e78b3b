"""What a cache policy may look at: how this rank will come to read rows. Arithmetic, no communicator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.registry import Registry

if TYPE_CHECKING:
    from leapmpi.dataset.topology import Topology
    from leapmpi.plan.schedule import Schedule

POLICIES = Registry("cache policy", "leapmpi.features.policies")


@dataclass(frozen=True)
class AccessPattern:
    """One rank's law of reading rows.

    train: int64[t], all training vertices; rank_offsets: int64[ranks + 1]; batch_size: roots per iteration over all
    ranks; roots_at_home: whether roots are trained where they are at home, or dealt to the ranks at random; schedule:
    (batch, epoch, iteration) -> Schedule, pure; balances: whether that moves roots from home to even out loads.
    """

    topology: Topology
    sampler: Any
    train: np.ndarray
    rank: int
    rank_offsets: np.ndarray
    batch_size: int
    roots_at_home: bool
    seed: int
    schedule: Callable[[np.ndarray, int, int], Schedule]
    balances: bool = False

    @property
    def home(self) -> slice:
        """The vertices at home with this rank."""
        return slice(int(self.rank_offsets[self.rank]), int(self.rank_offsets[self.rank + 1]))


def choose(access: AccessPattern, policy: str, count: int) -> np.ndarray:
    """At most `count` vertices at home elsewhere, int64 ascending, those that score highest by the policy called so.

    Vertices that score 0 are never read, and left out; of equal scores the lower ids come first. Raises ConfigError
    for an unknown policy.
    """
    scores = POLICIES.load(policy).POLICY(access)
    scores[access.home] = 0
    useful = np.flatnonzero(scores > 0)
    best = np.argsort(-scores[useful], kind="stable")[:count]
    return np.sort(useful[best])
