"""Training for link prediction: as for vertices, with edges as roots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.dataset.edge_splits import both_ways, check_unseen
from leapmpi.dataset.topology import Topology
from leapmpi.engine.context import Loaded
from leapmpi.engine.edges.link_engine import LinkEngine
from leapmpi.engine.engine import Engine
from leapmpi.sampling.edges.training_edges import TrainingEdges
from leapmpi.training.edges.link_evaluation import LinkEvaluator
from leapmpi.training.evaluation import Evaluator
from leapmpi.training.trainer import Trainer


class LinkTrainer(Trainer):
    """Trains one model on the edges of the topology, and scores it on those that are held back."""

    def __init__(self, config: Config, world: World, loaded: Loaded, begun: float) -> None:
        self._edges = training_edges(loaded)
        super().__init__(config, world, loaded, begun)

    @property
    def root_count(self) -> int:
        return len(self._edges)

    def make_engine(self) -> Engine:
        return LinkEngine(self.ctx, self.config.strategy, self.config.link)

    def make_evaluator(self) -> Evaluator:
        return LinkEvaluator(self.config, self.loaded.dataset, self.loaded.topology, self.ctx)

    def iterations(self) -> int:
        return -(-len(self._edges) // self.config.train.batch_size)

    def epoch_batches(self, epoch: int) -> Sequence[np.ndarray]:
        train = self.config.train
        return self.ctx.sampler.drawing.edge_batches(self._edges, train.seed, epoch, train.batch_size)


def training_edges(loaded: Loaded) -> TrainingEdges:
    """The edges that are trained: those of the topology. Raises DataError where it has an edge that is held back."""
    dataset, topology = loaded.dataset, loaded.topology
    assert isinstance(topology, Topology), "link prediction is refused where the topology is sharded"
    check_unseen(dataset.edge_splits, topology, topology.original_id, str(dataset.folder))
    return TrainingEdges(topology, both_ways(dataset.attributes))
