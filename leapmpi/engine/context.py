"""What a strategy works with on one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.system.phase_timers import PhaseTimers


@dataclass
class RankContext:
    """What a strategy works with on this rank."""

    communicator: Communicator
    phases: PhaseTimers
    sampler: Any
    model: Any
    parameters: ParameterLayout
    features: FeatureFetcher
    labels: FeatureFetcher
    rank_offsets: np.ndarray
    device: Any
    seed: int
    columns: FeatureFetcher | None = None
    """This rank's columns of the features of all vertices, where a strategy splits features by columns."""
    in_place: bool = True
    """Whether features may be read where they lie: a forecast for GPUs, which has none, says that they may not."""
    drops: bool = True
    """Whether dropout applies to what is read: in training."""

    @property
    def input_row_bytes(self) -> int:
        """Bytes of a row of features as the first layer reads it, the mean where rows differ."""
        features = self.features
        return features.held_row_bytes * self.model.layers[0].in_dim // features.shard.width

    @property
    def scatters(self) -> bool:
        """Whether the first layer reads rows of features where they lie, and needs no copy of them."""
        plain = self.model.layers[0].plain_prefix or not self.drops
        return self.in_place and (self.columns or self.features).scatters and plain

    def stand_in(self, count: int) -> Any:
        """`count` rows that the first layer can read, to compile and to measure with. Local."""
        return (self.columns or self.features).stand_in(count, self.model.layers[0].in_dim, self.scatters)

    def root_labels(self, roots: np.ndarray, at_home: bool = False) -> Any:
        """Labels of distinct `roots`: int64[n], or (n, classes) when multi-label. Collective.

        `at_home`, which all ranks give alike, says that every rank asks for its own alone: then nothing is exchanged.
        """
        labels = self.labels.own(roots) if at_home else self.labels.fetch(roots)
        return labels if labels.is_floating_point() else labels.reshape(-1)


@dataclass
class Loaded:
    """A dataset in place on this rank, and the model that will be trained on it."""

    dataset: Dataset
    topology: Topology
    topology_held: str
    parts: range
    shard_bytes: int
    ctx: RankContext
