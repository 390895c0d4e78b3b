"""The engines of all ranks of a job in one process, and their counts of an iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.dataset.edge_splits import both_ways
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.engine import Engine
from leapmpi.engine.root_source import Plan
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.features.expected_reads import choose
from leapmpi.features.shards.row_request import RowCache
from leapmpi.forecast.virtual_world import Result, VirtualWorld
from leapmpi.plan.traffic_model import Traffic
from leapmpi.sampling.sampler import Sampler
from leapmpi.sampling.sharded.list_copies import OBSERVED
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.sampling.sharded.shared_edges import SharedEdges
from leapmpi.sampling.training_edges import TrainingEdges, target_relations
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey
from leapmpi.training.ensemble_models import count_models
from leapmpi.training.feature_cache import access_of
from leapmpi.training.root_batches import EdgeBatches, RootBatches, VertexBatches

DRY_EPOCH, CHOICE_EPOCH = 1, 0
"""Epochs of the random streams of dry runs: forecasts draw from one, and what to cache is chosen by the other."""


Batches = Sequence[np.ndarray | None]
"""Roots of one iteration by rank: all of them on rank 0, or a share on each where edges of a sharded topology are."""


def root_batches(
    config: Config, dataset: Dataset, topology: Topology, world: VirtualWorld, contexts: Sequence[RankContext]
) -> Sequence[RootBatches]:
    """Return the batches of training of each rank; what is exchanged for them is counted."""
    samplers, train = [each.sampler for each in contexts], config.train
    if contexts[0].task.roots == "vertices":
        return [VertexBatches(each, dataset.splits.train, train) for each in samplers]
    both, sharded = both_ways(dataset.attributes), [each for each in samplers if isinstance(each, ShardedSampler)]
    if sharded:
        shared = [SharedEdges(each.shard, both, each.communicator) for each in sharded]
        world.run(lambda rank: shared[rank].count())
        return [EdgeBatches(*each, train) for each in zip(samplers, shared, strict=True)]
    types = topology.types
    targets = None if types is None else target_relations(types, dataset.edge_splits)
    edges = TrainingEdges(topology, both, targets)
    return [EdgeBatches(each, edges, train) for each in samplers]


def keep_copies(
    config: Config,
    dataset: Dataset,
    topology: Topology,
    world: VirtualWorld,
    engines: Sequence[Engine],
    batches: Sequence[RootBatches],
) -> None:
    """Let each rank's cache hold the rows that the rank of a job would choose; what that exchanges is not counted.

    batches: those of training, by rank.
    """
    count = int(config.strategy.cache * dataset.vertices)
    patterns = [access_of(each, dataset, topology, known) for each, known in zip(engines, batches, strict=True)]
    for engine, ids in zip(engines, world.run(lambda rank: choose(patterns[rank], count)), strict=True):
        engine.ctx.features.cache = RowCache(ids, dataset.vertices)
    world.take()


@dataclass(frozen=True, eq=False)
class VirtualJob:
    """The engine of each rank of `world`. sampler: draws of any rank, from the whole topology."""

    world: VirtualWorld
    engines: Sequence[Engine]
    sampler: Sampler

    def key(self, iteration: int, epoch: int = DRY_EPOCH) -> DrawKey:
        """Return the key of the draws of an iteration of a dry run: no run draws from its streams."""
        return DrawKey(PRESAMPLE, self.engines[0].ctx.seed, epoch, iteration)

    def on_first(self, batch: np.ndarray) -> Batches:
        """List by rank the roots of an iteration that rank 0 alone has."""
        return [batch, *[None] * (len(self.engines) - 1)]

    def plan(self, batches: Batches, key: DrawKey) -> Plan:
        """Plan an iteration for all ranks; what that exchanges is counted. batches: by rank, as training gives them."""
        shared = self.world.run(
            lambda rank: self.engines[rank].roots.share(batches[rank], key, self.engines[rank].placement.time_steps)
        )
        return self.engines[0].roots.plan_shared(shared[0], key)

    def draw(self, batches: Batches, iteration: int) -> list[MiniBatch]:
        """Return the mini-batch of each rank in a dry run that trains `batches`. What this exchanges is counted."""
        self.world.take()
        key = self.key(iteration)
        return self.draw_planned(self.plan(batches, key), key)

    def draw_planned(self, planned: Plan, key: DrawKey) -> list[MiniBatch]:
        """Return the mini-batch of each rank by what is `planned`, drawn with `key`. What this exchanges is counted."""
        minibatches = self.world.run(lambda rank: self.engines[rank].draw(planned, key))
        if self.engines[0].preparation.plans_once:
            # Exchanges before the first iteration belong to no iteration.
            self.world.take()
        return minibatches

    def copy_lists(self, batches_of: Callable[[int], Sequence[Batches]]) -> list[int]:
        """Let ranks copy remote lists as training's first samples choose them; return the bytes of each rank.

        batches_of: returns the batches of an epoch. That is not counted, since it belongs to no iteration.
        """
        samplers = [each.ctx.sampler for each in self.engines]
        copies = [each.copies for each in samplers if isinstance(each, ShardedSampler) and each.copies is not None]
        if not copies:
            return [0] * len(samplers)
        # An iteration has at least one sample, unless no vertex is sampled at all.
        batches = batches_of(CHOICE_EPOCH)
        for iteration in range(OBSERVED + 1):
            if copies[0].observes:
                key = self.key(iteration, CHOICE_EPOCH)
                self.draw_planned(self.plan(batches[iteration % len(batches)], key), key)
        self.world.take()
        return [each.nbytes for each in copies]

    def uncounted(self, work: Callable[[int], Result]) -> list[Result]:
        """Return the results of `work(rank)` of all ranks; what they exchange is not counted."""
        before = self.world.take()
        found = self.world.run(work)
        self.world.traffic = before
        return found

    def count(self, minibatches: Sequence[MiniBatch], models: Sequence[int] = ()) -> Traffic:
        """Return what an iteration that trains `minibatches` sends and reads, with what was counted before.

        models: the bytes of the parameters of each of several models, which cross ranks; empty for one.
        """

        def iterate(rank: int) -> None:
            engine, minibatch = self.engines[rank], minibatches[rank]
            communicator = self.world.communicators[rank]
            engine.count(minibatch)
            if models:
                count_models(communicator, models)
            else:
                communicator.all_reduce(engine.ctx.parameters.shared_gradients)
            # Ranks agree once whether to stop.
            communicator.start_all_reduce_maximum(0)()

        self.world.run(iterate)
        return self.world.take()
