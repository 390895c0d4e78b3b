"""Training on edges, link prediction and classes: as for vertices, with edges as roots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.dataset.edge_splits import EdgeSplits, both_ways, check_unseen
from leapmpi.dataset.hdf5.names import HELD_EDGES
from leapmpi.engine.edges.edge_engine import EdgeEngine
from leapmpi.engine.engine import Engine
from leapmpi.errors import DataError
from leapmpi.evaluation.edge_class_evaluation import EdgeClassEvaluator
from leapmpi.evaluation.evaluator import Evaluator
from leapmpi.evaluation.link_evaluation import LinkEvaluator
from leapmpi.exchange.context import Loaded
from leapmpi.nn.task import Task
from leapmpi.sampling.sharded.shared_edges import SharedEdges
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.sampling.training_edges import TrainingEdges
from leapmpi.training.ensemble_trainer import ReplicaTrainer
from leapmpi.training.trainer import Trainer


class EdgeTrainer(Trainer):
    """Trains one model on the edges of the topology, or on the labelled ones, and scores it on those held back."""

    def __init__(self, config: Config, world: World, loaded: Loaded, begun: float) -> None:
        """`loaded` is what `with_root_edges` gave."""
        assert loaded.root_edges is not None, "edges are trained"
        self._edges = loaded.root_edges
        super().__init__(config, world, loaded, begun)

    @property
    def root_count(self) -> int:
        return len(self._edges)

    def make_engine(self) -> Engine:
        return EdgeEngine(self.ctx, self.config.strategy)

    def make_evaluator(self) -> Evaluator:
        return evaluator_class(self.ctx.task)(self.config, self.loaded.dataset, self.loaded.topology, self.ctx)

    def iterations(self) -> int:
        return -(-len(self._edges) // self.config.train.batch_size)

    @property
    def all_ranks_plan(self) -> bool:
        return self.ctx.sampler.sharded

    def epoch_batches(self, epoch: int) -> Sequence[np.ndarray]:
        train = self.config.train
        return self.ctx.sampler.drawing.edge_batches(self._edges, train.seed, epoch, train.batch_size)


class EdgeReplicaTrainer(EdgeTrainer, ReplicaTrainer):
    """The same for several models that differ, on the same batches of edges, which are dealt to the ranks."""


def evaluator_class(task: Task) -> type[Evaluator]:
    """What scores the held-back edges of `task`, whose roots are edges."""
    return EdgeClassEvaluator if task.reads_edge_labels else LinkEvaluator


def with_root_edges(world: World, loaded: Loaded) -> Loaded:
    """`loaded` with the edges that are trained: those of the topology, or the labelled ones of them. Collective.

    Raises DataError, on all ranks alike, where it has an edge that is held back, or none that could be trained.
    """
    dataset, topology = loaded.dataset, loaded.topology
    where, directions = str(dataset.folder), both_ways(dataset.attributes)
    found: TrainingEdges
    if isinstance(topology, TopologyShard):
        world.on_all(lambda: check_unseen_here(dataset.edge_splits, topology, where))
        found = SharedEdges(topology, directions, loaded.ctx.communicator)
        found.count()
    else:
        world.on_all(lambda: check_unseen(dataset.edge_splits, topology, topology.original_id, where))
        found = TrainingEdges(topology, directions)
    if not len(found):
        error = DataError(f"{where} has no edge with a label that could be trained; import it again with labels")
        error.agreed = True
        raise error
    return replace(loaded, root_edges=found)


def check_unseen_here(splits: EdgeSplits | None, shard: TopologyShard, where: str) -> None:
    """As `check_unseen`, for the lists of `shard`, whose sources are numbered."""
    for name, edges in splits.arrays().items() if splits and splits.held == HELD_EDGES else ():
        for direction in (np.asarray(edges), np.asarray(edges)[:, ::-1]):
            inside = np.flatnonzero((direction[:, 1] >= shard.first) & (direction[:, 1] < shard.end))
            if len(bad := inside[shard.lists(direction[inside])]):
                raise DataError(
                    f"{where}: {name}, row {bad[0]}, or its reverse, is also an edge of the topology, so that training "
                    "would see it; split the edges again"
                )
