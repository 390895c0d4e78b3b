"""Batches of an epoch: of training vertices, or of edges of the topology."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from leapmpi.comm.world import World
from leapmpi.config.sections import TrainConfig
from leapmpi.dataset.edge_splits import EdgeSplits, both_ways, check_unseen
from leapmpi.dataset.hdf5.names import HELD_EDGES
from leapmpi.dataset.held_back_triples import check_triples_apart
from leapmpi.errors import DataError
from leapmpi.exchange.context import Loaded
from leapmpi.sampling.sampler import Sampler
from leapmpi.sampling.sharded.shared_edges import SharedEdges
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.sampling.training_edges import TrainingEdges, target_relations
from leapmpi.system.counter_rng import ORDER


@dataclass(frozen=True, eq=False)
class VertexBatches:
    """Batches int64[B] of the training vertices `train`, int64[n].

    all_ranks_plan: whether every rank plans a share of each batch, so that `of_epoch` is collective. It is in order.
    """

    sampler: Sampler
    train: np.ndarray
    config: TrainConfig
    all_ranks_plan: bool = False

    @property
    def count(self) -> int:
        """Number of training vertices."""
        return len(self.train)

    @property
    def per_epoch(self) -> int:
        """Number of batches of every epoch, by the sampler."""
        return self.sampler.iterations(self.train, self.config.batch_size)

    def of_epoch(self, epoch: int, stream: int = ORDER) -> Sequence[np.ndarray]:
        """Return the batches of `epoch` of a random stream. Local."""
        return self.sampler.batches(self.train, self.config.seed, epoch, self.config.batch_size, stream)


@dataclass(frozen=True, eq=False)
class EdgeBatches:
    """Batches int64[B, 2] of `edges`; with a sharded topology, the share of each rank."""

    sampler: Sampler
    edges: TrainingEdges
    config: TrainConfig

    @property
    def count(self) -> int:
        """Number of edges to train."""
        return len(self.edges)

    @property
    def per_epoch(self) -> int:
        """Number of batches of every epoch; the last may be short."""
        return -(-len(self.edges) // self.config.batch_size)

    @property
    def all_ranks_plan(self) -> bool:
        """Whether each rank has a share of the edges."""
        return self.sampler.sharded

    def of_epoch(self, epoch: int, stream: int = ORDER) -> Sequence[np.ndarray]:
        """Return the batches of `epoch` of a random stream. Collective if the topology is sharded."""
        return self.sampler.drawing.edge_batches(self.edges, self.config.seed, epoch, self.config.batch_size, stream)


RootBatches = VertexBatches | EdgeBatches
"""Roots of all epochs, in batches."""


def with_root_edges(world: World, loaded: Loaded) -> Loaded:
    """Return `loaded` with the edges to train: those of the topology, or the labelled ones of them. Collective.

    Raises DataError, on all ranks alike, where it has an edge that is held back, or none that could be trained.
    """
    dataset, topology = loaded.dataset, loaded.topology
    where, directions = str(dataset.folder), both_ways(dataset.attributes)
    # Each rank of a sharded topology checks its own lists; errors are raised on all, lest one waits for the others.
    found: TrainingEdges
    if isinstance(topology, TopologyShard):
        world.on_all(lambda: check_unseen_here(dataset.edge_splits, topology, where))
        found = SharedEdges(topology, directions, loaded.ctx.communicator)
        found.count()
    else:
        splits, types, targets = dataset.edge_splits, topology.types, None
        if types is None:
            world.on_all(lambda: check_unseen(splits, topology, topology.original_id, where))
        else:
            lists = topology.indptr, topology.indices, topology.relation
            world.on_all(lambda: check_triples_apart(splits, lists, types, 0, topology.original_id, where))
            targets = target_relations(types, splits)
        found = TrainingEdges(topology, directions, targets)
    if not len(found):
        error = DataError(f"{where} has no edge with a label that could be trained; import it again with labels")
        error.agreed = True
        raise error
    return replace(loaded, root_edges=found)


def check_unseen_here(splits: EdgeSplits | None, shard: TopologyShard, where: str) -> None:
    """Check as `check_unseen` does, for the lists of `shard`, whose sources are numbered."""
    for name, edges in splits.arrays().items() if splits and splits.held == HELD_EDGES else ():
        for direction in (np.asarray(edges), np.asarray(edges)[:, ::-1]):
            inside = np.flatnonzero((direction[:, 1] >= shard.first) & (direction[:, 1] < shard.end))
            if len(bad := inside[shard.lists(direction[inside])]):
                raise DataError(
                    f"{where}: {name}, row {bad[0]}, or its reverse, is also an edge of the topology, so that training "
                    "would see it; split the edges again"
                )
