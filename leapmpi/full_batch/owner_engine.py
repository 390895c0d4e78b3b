"""The engine of mini-batches computed layer by layer at home: blocks and routes are made anew in every iteration."""

from __future__ import annotations

import numpy as np

from leapmpi.engine.engine import Engine
from leapmpi.exchange.layer_graphs import (
    PARTIAL,
    GraphBuilder,
    LayerGraph,
    SampledGraphBuilder,
    build_here,
)
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.named_edges import EdgeNames
from leapmpi.full_batch.full_batch_engine import FullBatchEngine
from leapmpi.full_batch.layer_by_layer import feeds_of, graph_of
from leapmpi.plan.edge_plan import EdgePlan
from leapmpi.plan.homes import home_of
from leapmpi.plan.list_traffic import predict_draws, predict_tables
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.traffic_model import Traffic
from leapmpi.sampling.sharded.remote_lists import KIND
from leapmpi.system.counter_rng import TRAIN, DrawKey


class OwnerEngine(FullBatchEngine):
    """Trains mini-batches; each (layer, vertex) is computed once, by its home rank."""

    limits_memory = plans_once = False

    def plan(self, batch: np.ndarray | None, epoch: int, iteration: int) -> MiniBatch:
        """Broadcast the schedule of `batch`, then draw hop by hop with the other ranks. Collective."""
        ctx = self.ctx
        with ctx.phases("plan"):
            buffer = None if batch is None else self.placement.schedule(batch, epoch, iteration).to_buffer()
            schedule = Schedule.from_buffer(ctx.communicator.broadcast(buffer, "schedule"))
        with ctx.phases("sample"):
            return self.draw(schedule, DrawKey(TRAIN, ctx.seed, epoch, iteration))

    def announce(self, planned: Schedule | EdgePlan) -> None:
        Engine.announce(self, planned)

    def draw(self, planned: Schedule | EdgePlan, key: DrawKey) -> MiniBatch:
        """Draw hop by hop with the other ranks. Collective."""
        assert isinstance(planned, Schedule), "what `planned` gives"
        return self.minibatch(planned, key, build_here(self.sampled_builder(planned, key), self.ctx.communicator))

    def trial(self, batch: np.ndarray | None, time_steps: int) -> MiniBatch:
        """The first mini-batch. Collective."""
        minibatch = self.plan(batch, 0, 0)
        self.ctx.sampler.forget()
        return minibatch

    def sampled_builder(self, schedule: Schedule, key: DrawKey) -> GraphBuilder:
        """What builds the graph of this rank for one mini-batch. Local."""
        ctx, chooser = self.ctx, self.placement.chooser()
        roots, layers = schedule.cell(ctx.rank, 0), len(ctx.model.layers)
        of_rank = (ctx.sampler, roots, ctx.rank_offsets, ctx.rank, layers, chooser)
        return SampledGraphBuilder(key, schedule.roots, *of_rank)

    def minibatch(self, schedule: Schedule, key: DrawKey, graph: LayerGraph, by_owner: bool = False) -> MiniBatch:
        of_roots = MicroBatch(graph.roots, graph.blocks, None)
        return MiniBatch(schedule, key, [of_roots], graph=graph)

    def request(self, minibatch: MiniBatch) -> None:
        Engine.request(self, minibatch)
        if not self.ctx.communicator.carries:
            return
        (micro_batch,) = minibatch.micro_batches
        micro_batch.tensors = micro_batch.on_device(self.ctx.device)
        minibatch.feeds = [feeds_of(self.ctx, graph_of(minibatch), micro_batch.tensors)]

    def predict_draws(self, minibatch: MiniBatch, traffic: Traffic) -> None:
        """Each layer's destinations draw by themselves; of those that get sums, edges are named to the owners."""
        ctx, answers = self.ctx, self.ctx.answers
        if answers is None:
            return
        drawn = ctx.sampler.drawing, minibatch.key
        predict_tables(*drawn, minibatch.planned.roots, ctx.rank, ctx.rank_offsets, traffic)
        for plan in graph_of(minibatch).plans:
            predict_draws(*drawn, [plan.block], ctx.rank, ctx.rank_offsets, answers, traffic)
            if plan.kind == PARTIAL and plan.by_kind is not None:
                home = home_of(plan.block.neighbours, ctx.rank_offsets)
                names = EdgeNames(plan.block, home, plan.by_kind.received_counts, plan.by_kind.received, answers)
                sizes = names.sizes * answers.word.itemsize
                traffic.add_naming(ctx.rank, KIND, sizes, 0 * sizes, counted=2)

    @property
    def prefetch_depth(self) -> int:
        return Engine.prefetch_depth.__get__(self)

    def sentences(self) -> list[str]:
        return []
