"""The engine of mini-batches computed layer by layer at home: blocks and routes are made anew in every iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.engine.engine import Engine
from leapmpi.engine.minibatch import MicroBatch, MiniBatch
from leapmpi.full_batch.full_batch_engine import FullBatchEngine
from leapmpi.full_batch.full_batch_placement import FullBatchPlacement
from leapmpi.full_batch.layer_graphs import GraphBuilder, LayerGraph, SampledGraphBuilder, build_all, build_here
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.traffic_model import Traffic
from leapmpi.system.counter_rng import TRAIN, DrawKey


class OwnerEngine(FullBatchEngine):
    """Trains mini-batches; each (layer, vertex) is computed once, by its home rank."""

    limits_memory = False

    def plan(self, batch: np.ndarray | None, epoch: int, iteration: int) -> MiniBatch:
        """Broadcast the schedule of `batch`, then draw hop by hop with the other ranks. Collective."""
        ctx = self.ctx
        with ctx.phases("plan"):
            buffer = None if batch is None else self.placement.schedule(batch, epoch, iteration).to_buffer()
            schedule = Schedule.from_buffer(ctx.communicator.broadcast(buffer, "schedule"))
        key = DrawKey(TRAIN, ctx.seed, epoch, iteration)
        with ctx.phases("sample"):
            graph = build_here(self.sampled_builder(schedule, key), ctx.communicator)
        return self.minibatch(schedule, key, graph)

    def trial(self, batch: np.ndarray | None, time_steps: int) -> MiniBatch:
        """The first mini-batch. Collective."""
        return self.plan(batch, 0, 0)

    @staticmethod
    def sample_all(engines: Sequence[Engine], schedule: Schedule, key: DrawKey) -> list[MiniBatch]:
        found = cast("Sequence[OwnerEngine]", engines)
        graphs = build_all([each.sampled_builder(schedule, key) for each in found])
        return [each.minibatch(schedule, key, graph) for each, graph in zip(found, graphs, strict=True)]

    def sampled_builder(self, schedule: Schedule, key: DrawKey) -> GraphBuilder:
        """What builds the graph of this rank for one mini-batch. Local."""
        ctx, placement = self.ctx, cast("FullBatchPlacement", self.placement)
        roots, layers = schedule.cell(ctx.rank, 0), len(ctx.model.layers)
        of_rank = (ctx.sampler, roots, ctx.rank_offsets, ctx.rank, layers, placement.caches)
        return SampledGraphBuilder(key, schedule.roots, *of_rank)

    def minibatch(self, schedule: Schedule, key: DrawKey, graph: LayerGraph) -> MiniBatch:
        return MiniBatch(schedule, key, [MicroBatch(graph.roots, graph.blocks, None)], exchange_plans=[graph])

    def request(self, minibatch: MiniBatch) -> None:
        Engine.request(self, minibatch)

    def predict_request(self, minibatch: MiniBatch, traffic: Traffic) -> None:
        """With the ids of the vertices that ranks compute for each other."""
        Engine.predict_request(self, minibatch, traffic)
        ctx, graph = self.ctx, cast("LayerGraph", minibatch.exchange_plans[0])
        id_bytes = IdCodec.home_ranks(ctx.rank_offsets).id_bytes
        for routes in graph.routes:
            traffic.add_request(ctx.rank, routes.received_counts, id_bytes, "activations", 0)

    @property
    def prefetch_depth(self) -> int:
        return Engine.prefetch_depth.__get__(self)
