"""The objects of one rank that a strategy works with, and the loaded dataset behind them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import torch

from leapmpi.comm.communicator import Communicator
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.learned_rows import LearnedRows
from leapmpi.features.memory_split import Split
from leapmpi.features.shards.row_placement import Sharers
from leapmpi.nn.layer import plain_prefix
from leapmpi.nn.model import Model
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.nn.rows import Rows
from leapmpi.nn.task import Task
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.sampling.sampler import Sampler
from leapmpi.sampling.sharded.answer_format import AnswerFormat
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.sampling.training_edges import TrainingEdges
from leapmpi.system.phase_timers import PhaseTimers


class Packing(IntEnum):
    """Forms in which computed rows travel: whole, without dropped columns and zeros, and with short exponents too."""

    NONE = 0
    WITHOUT_ZEROS = 1
    SHORT_EXPONENTS = 2


@dataclass
class RankContext:
    """Communicator, timers, sampler, model, task and rows of this rank."""

    communicator: Communicator
    phases: PhaseTimers
    sampler: Sampler
    model: Model
    task: Task
    parameters: ParameterLayout
    features: FeatureFetcher
    labels: FeatureFetcher
    rank_offsets: np.ndarray
    """int64[ranks + 1]: rank r owns vertices rank_offsets[r] to rank_offsets[r + 1] (exclusive)."""
    device: torch.device
    seed: int
    columns: FeatureFetcher | None = None
    """This rank's columns of the features of all vertices, where a strategy splits features by columns."""
    edge_features: FeatureFetcher | None = None
    """The features of edges by their numbers in the topology, where a layer reads them."""
    in_place: bool = True
    """Whether features may be read in place. A forecast for GPUs, which it does not have, sets this to False."""
    machine: MachineRates = field(default_factory=MachineRates)
    """Rates of this machine, for choices that are made before training; the same on all ranks."""
    answers: AnswerFormat | None = None
    """The format of owners' replies about the draws of their vertices, where the topology is sharded."""
    counts_sources: bool = False
    """Whether all sources of mini-batches are numbered when drawn, because a forecast counts them."""
    packing: Packing = Packing.NONE
    """The form in which computed rows travel between ranks."""
    drops: bool = True
    """Whether dropout applies to what is read: in training."""

    @property
    def rank(self) -> int:
        """This rank's number."""
        return self.communicator.rank

    @property
    def ranks(self) -> int:
        """Number of ranks among which roots are placed."""
        return len(self.rank_offsets) - 1

    @property
    def learned(self) -> LearnedRows | None:
        """The rows that training moves, where they stand for features."""
        return self.features.learned

    @property
    def vertices(self) -> int:
        """The number of vertices of the graph."""
        return int(self.rank_offsets[-1])

    @property
    def local_range(self) -> tuple[int, int]:
        """First vertex (inclusive) and last (exclusive) that this rank owns."""
        first, end = self.rank_offsets[self.rank : self.rank + 2]
        return int(first), int(end)

    @property
    def input_row_bytes(self) -> int:
        """Bytes of a feature row as layer 0 reads it; the mean where rows differ."""
        features = self.features
        return features.held_row_bytes * self.model.layers[0].in_dim // features.shard.width

    @property
    def scatters(self) -> bool:
        """Whether layer 0 reads feature rows in place, without a copy of them."""
        plain = plain_prefix(self.model.layers[0]) or not self.drops
        return self.in_place and (self.columns or self.features).scatters and plain

    def dummy_rows(self, count: int) -> Rows:
        """Make `count` rows that layer 0 can read, for compiling and measuring. Local."""
        return (self.columns or self.features).dummy_rows(count, self.model.layers[0].in_dim, self.scatters)

    def root_labels(self, roots: np.ndarray, local: bool = False) -> torch.Tensor:
        """Return the labels of distinct `roots`: int64[n], or (n, classes) when multi-label. Collective.

        All ranks pass the same `local`. With True every rank requests local vertices only, so nothing travels.
        """
        labels = self.labels.local(roots) if local else self.labels.fetch(roots)
        assert isinstance(labels, torch.Tensor), "labels are stored dense"
        return labels if labels.is_floating_point() else labels.reshape(-1)


@dataclass
class Loaded:
    """A dataset in place on this rank, and the context of the model that will be trained on it."""

    dataset: Dataset
    topology: Topology | TopologyShard
    topology_held: str
    """A description of how the topology is held: one copy per node, a copy per rank, sharded."""
    parts: range
    starts: np.ndarray
    """int64[ranks + 1]: the first part of each rank."""
    shard_bytes: int
    ctx: RankContext
    verified: bool = True
    """Whether the features of this rank were verified while loading."""
    root_edges: TrainingEdges | None = None
    """The edges to train on, in a task on edges."""
    shared: Sharers = field(default_factory=Sharers)
    """The numbers of ranks that share this one's device and its node."""
    split: Split | None = None
    """Shares of lists and feature rows in the memory of this rank's node, where the job has chosen them."""
