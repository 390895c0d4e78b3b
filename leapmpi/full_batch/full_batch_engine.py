"""The engine of full batches: blocks and routes are made once and kept, since every iteration has the same roots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from torch import Tensor

from leapmpi.config.sections import StrategyConfig
from leapmpi.config.setting import ALL_NEIGHBOURS
from leapmpi.engine.context import RankContext
from leapmpi.engine.edges.edge_features import fetch_edge_features
from leapmpi.engine.engine import Engine
from leapmpi.engine.minibatch import MicroBatch, MiniBatch
from leapmpi.features.cache import RowCache
from leapmpi.full_batch.full_batch_placement import FullBatchPlacement
from leapmpi.full_batch.layer_by_layer import KeptGraph
from leapmpi.full_batch.layer_graphs import GraphBuilder, LayerGraph, build_all, build_here
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.traffic_model import Traffic
from leapmpi.sampling.edge_lookup import with_edge_data
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.system.counter_rng import TRAIN, DrawKey


class FullBatchEngine(Engine):
    """Trains all training vertices in every iteration. `plan` makes the LayerGraph when it is first called."""

    limits_memory = True

    def __init__(self, ctx: RankContext, config: StrategyConfig) -> None:
        super().__init__(ctx, config)
        self._kept: MiniBatch | None = None

    def plan(self, batch: np.ndarray | None, epoch: int, iteration: int) -> MiniBatch:
        """The mini-batch of all training vertices; `batch` (on rank 0) is read in the first call alone. Collective."""
        if self._kept is None:
            self._kept = self._made(batch)
        return replace(self._kept, key=DrawKey(TRAIN, self.ctx.seed, epoch, iteration))

    def trial(self, batch: np.ndarray | None, time_steps: int) -> MiniBatch:
        """The same as in training. Collective."""
        return self.plan(batch, 0, 0)

    def sample(self, schedule: Schedule, key: DrawKey) -> MiniBatch:
        """Not possible: what a rank computes depends on what the others choose."""
        raise NotImplementedError("use sample_all or plan")

    @staticmethod
    def sample_all(engines: Sequence[Engine], schedule: Schedule, key: DrawKey) -> list[MiniBatch]:
        """The mini-batches of all ranks in one process, with the caches that they would fill. Local."""
        found = cast("Sequence[FullBatchEngine]", engines)
        graphs = build_all([each.builder(schedule) for each in found])
        return [each.minibatch(schedule, key, graph) for each, graph in zip(found, graphs, strict=True)]

    def builder(self, schedule: Schedule) -> GraphBuilder:
        """What builds the graph of this rank. Local."""
        ctx, placement = self.ctx, cast("FullBatchPlacement", self.placement)
        topology, layers = ctx.sampler.topology, len(ctx.model.layers)
        one_hop = with_edge_data(
            NodeWiseSampler(topology, (ALL_NEIGHBOURS,), ctx.sampler.threads), ctx.edge_features is not None
        )
        return GraphBuilder(one_hop, schedule.cell(ctx.rank, 0), ctx.rank_offsets, ctx.rank, layers, placement)

    def minibatch(self, schedule: Schedule, key: DrawKey, graph: LayerGraph) -> MiniBatch:
        """The mini-batch that computes `graph`; names the rows that are kept, but does not fetch them. Local."""
        if len(graph.cached):
            self.ctx.features.cache = RowCache(graph.cached, self.ctx.sampler.topology.vertices)
        return MiniBatch(
            schedule, key, [MicroBatch(graph.roots, graph.blocks, None)], exchange_plans=[KeptGraph(graph)]
        )

    def request(self, minibatch: MiniBatch) -> None:
        """Request the feature rows that are not kept; labels and weights of the roots are. Collective."""
        with self.ctx.phases("exchange"):
            self.mode.request(minibatch)

    def predict_request(self, minibatch: MiniBatch, traffic: Traffic) -> None:
        """Nothing: roots, labels and features of edges are here from the start."""

    @property
    def prefetch_depth(self) -> int:
        """None unless asked: rows that are fetched ahead take as much memory again."""
        return (
            0 if self.config.prefetch == "auto" or self.ctx.features.returned_row_bytes else int(self.config.prefetch)
        )

    def _made(self, batch: np.ndarray | None) -> MiniBatch:
        """The mini-batch of `batch` (on rank 0), with all that does not change between iterations. Collective."""
        ctx = self.ctx
        with ctx.phases("plan"):
            buffer = None if batch is None else self.placement.schedule(batch, 0, 0).to_buffer()
            schedule = Schedule.from_buffer(ctx.communicator.broadcast(buffer, "schedule"))
        with ctx.phases("sample"):
            graph = build_here(self.builder(schedule), ctx.communicator)
        minibatch = self.minibatch(schedule, DrawKey(TRAIN, ctx.seed, 0, 0), graph)

        # Features that are kept, those of edges, and labels.
        with ctx.phases("exchange"):
            if ctx.communicator.all_gather_rows(np.array([len(graph.cached)])).any():
                vertices = ctx.sampler.topology.vertices
                ctx.features.fill(ctx.features.cache or RowCache(graph.cached, vertices))
            fetch_edge_features(ctx, minibatch.micro_batches)
            labels = ctx.root_labels(graph.roots, local=True)
            assert isinstance(labels, Tensor), "labels are stored dense"
            minibatch.labels = [labels.clone()]
        (micro_batch,) = minibatch.micro_batches
        micro_batch.tensors = micro_batch.on_device(ctx.device)
        kept: KeptGraph = minibatch.exchange_plans[0]
        kept.make_steps(ctx, micro_batch.tensors)
        minibatch.root_weights = [ctx.sampler.root_weights(minibatch.key, graph.roots, schedule.batch_size)]
        return minibatch
