"""Training on edges, link prediction and classes: as for vertices, with edges as roots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.dataset.edge_splits import both_ways, check_unseen
from leapmpi.engine.context import Loaded
from leapmpi.engine.edges.edge_engine import EdgeEngine
from leapmpi.engine.engine import Engine
from leapmpi.errors import DataError
from leapmpi.nn.task import Task
from leapmpi.sampling.edges.training_edges import TrainingEdges
from leapmpi.sampling.sharded.topology_shard import whole
from leapmpi.training.edges.edge_class_evaluation import EdgeClassEvaluator
from leapmpi.training.edges.link_evaluation import LinkEvaluator
from leapmpi.training.ensemble_trainer import ReplicaTrainer
from leapmpi.training.evaluation import Evaluator
from leapmpi.training.trainer import Trainer


class EdgeTrainer(Trainer):
    """Trains one model on the edges of the topology, or on the labelled ones, and scores it on those held back."""

    def __init__(self, config: Config, world: World, loaded: Loaded, begun: float) -> None:
        self._edges = training_edges(loaded)
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

    def epoch_batches(self, epoch: int) -> Sequence[np.ndarray]:
        train = self.config.train
        return self.ctx.sampler.drawing.edge_batches(self._edges, train.seed, epoch, train.batch_size)


class EdgeReplicaTrainer(EdgeTrainer, ReplicaTrainer):
    """The same for several models that differ, on the same batches of edges, which are dealt to the ranks."""


def evaluator_class(task: Task) -> type[Evaluator]:
    """What scores the held-back edges of `task`, whose roots are edges."""
    return EdgeClassEvaluator if task.reads_edge_labels else LinkEvaluator


def training_edges(loaded: Loaded) -> TrainingEdges:
    """The edges that are trained: those of the topology, or the labelled ones of them.

    Raises DataError where it has an edge that is held back, or none that could be trained.
    """
    dataset, topology = loaded.dataset, whole(loaded.topology)
    check_unseen(dataset.edge_splits, topology, topology.original_id, str(dataset.folder))
    found = TrainingEdges(topology, both_ways(dataset.attributes))
    if not len(found):
        raise DataError(f"{dataset.folder} has no edge with a label that could be trained; import it again with labels")
    return found
