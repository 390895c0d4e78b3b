"""The engine of mini-batches computed layer by layer at home: blocks and routes are made anew in every iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.engine.engine import Engine
from leapmpi.exchange.layer_graphs import (
    KINDS,
    PARTIAL,
    GraphBuilder,
    LayerGraph,
    SampledGraphBuilder,
    build_all,
    build_here,
)
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.named_edges import EdgeNames, KnownEdges
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
        minibatch = self.plan(batch, 0, 0)
        self.ctx.sampler.forget()
        return minibatch

    @staticmethod
    def sample_all(engines: Sequence[Engine], planned: Schedule | EdgePlan, key: DrawKey) -> list[MiniBatch]:
        assert isinstance(planned, Schedule), "what `planned` gives"
        schedule, found = planned, cast("Sequence[OwnerEngine]", engines)
        graphs = build_all([each.sampled_builder(schedule, key) for each in found])
        return [each.minibatch(schedule, key, graph) for each, graph in zip(found, graphs, strict=True)]

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
                names = EdgeNames(
                    KnownEdges.of(plan.block), home, plan.by_kind.received_counts, plan.by_kind.received, answers
                )
                sizes = names.sizes * answers.word.itemsize
                traffic.add_naming(ctx.rank, KIND, sizes, 0 * sizes, counted=2)

    def predict_request(self, minibatch: MiniBatch, traffic: Traffic) -> None:
        """With the ids of the vertices that ranks compute for each other."""
        Engine.predict_request(self, minibatch, traffic)
        ctx = self.ctx
        id_bytes, nothing = IdCodec.any_id(ctx.rank_offsets).id_bytes, np.zeros(ctx.ranks, np.int64)
        for plan in graph_of(minibatch).plans:
            asked = [each.received_counts for each in (plan.rows, plan.by_kind) if each is not None]
            # The first layer names no rows, in a message of its own; so do sums the rows among them.
            empty = [nothing] * ((plan.rows is None) + (plan.kind == PARTIAL))
            for received in [*empty, *asked]:
                traffic.add_request(ctx.rank, received, id_bytes, "activations", 0)
            traffic.add_gather(ctx.rank, np.float64().nbytes * len(KINDS), "control")

    @property
    def prefetch_depth(self) -> int:
        return Engine.prefetch_depth.__get__(self)

    def sentences(self) -> list[str]:
        return []
