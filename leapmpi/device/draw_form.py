"""Interface of the device forms of samplers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import numpy as np

from leapmpi.device.device_frontier import Destinations, DeviceTopology
from leapmpi.device.hashing import signed
from leapmpi.device.lists import DeviceDrawn
from leapmpi.sampling.hop_sampler import HopSampler
from leapmpi.system.counter_rng import DrawKey, fold, key_hash

S = TypeVar("S", bound=HopSampler)


class DrawForm(ABC, Generic[S]):
    """Device form of `sampler`, for one topology on one device."""

    names_edges = True
    """Whether draws are edges of the topology, with their numbers."""

    def __init__(self, sampler: S, topology: DeviceTopology) -> None:
        self.sampler, self.topology = sampler, topology
        self._at_most: int | None = None

    @staticmethod
    def needed_bytes(sampler: HopSampler) -> int:
        """Return the bytes that the form keeps on the device besides the topology."""
        return 0

    def begin(self, key: DrawKey, batch: np.ndarray) -> None:
        """Prepare the draws of the iteration of `key`, whose roots over all ranks are `batch` (int64[B])."""
        self.sampler.begin(key, batch)

    def forget(self) -> None:
        """Forget these preparations."""

    @abstractmethod
    def draw(self, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        """Draw for `to` at `hop`. `topology` is that of the form, perhaps with copies of lists without some edges."""

    def fanout(self, hop: int) -> int:
        """Return the fan-out of the lists that are drawn from at `hop`."""
        return self.sampler.fanouts[hop] if self._at_most is None else self._at_most

    def draw_at_most(
        self, fanout: int, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations
    ) -> DeviceDrawn:
        """Draw as `draw` does, with another fan-out."""
        self._at_most = fanout
        try:
            return self.draw(key, hop, topology, to)
        finally:
            self._at_most = None


def hashed(key: DrawKey, hop: int) -> int:
    """Return the word of key and hop, from which draws are folded: bits of uint64, as int64."""
    return signed(fold(key_hash(key), hop))
