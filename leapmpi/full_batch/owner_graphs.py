"""Mini-batches computed layer by layer, each row by its owner: blocks and routes are made in every iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.engine.engine import Preparation
from leapmpi.engine.root_source import Plan, of_kind
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
from leapmpi.full_batch.full_batch_placement import FullBatchPlacement
from leapmpi.full_batch.layer_by_layer import feeds_of, graph_of
from leapmpi.plan.homes import home_of
from leapmpi.plan.list_traffic import predict_draws, predict_tables
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.traffic_model import Traffic
from leapmpi.sampling.sharded.remote_lists import KIND
from leapmpi.system.counter_rng import DrawKey


class OwnerGraphs(Preparation):
    """Layer graphs of mini-batches, drawn hop by hop with the other ranks: each rank computes the rows that it owns."""

    placement: FullBatchPlacement

    def sample(self, schedule: Schedule, key: DrawKey) -> MiniBatch:
        """Draw the graph of this rank together with the other ranks. Collective."""
        return _minibatch(schedule, key, build_here(self._builder(schedule, key), self.ctx.communicator))

    def sample_all(self, ranks: Sequence[Preparation], planned: Plan, key: DrawKey) -> list[MiniBatch]:
        schedule, found = of_kind(planned, Schedule), cast("Sequence[OwnerGraphs]", ranks)
        return [
            _minibatch(schedule, key, graph) for graph in build_all([each._builder(schedule, key) for each in found])
        ]

    def _builder(self, schedule: Schedule, key: DrawKey) -> GraphBuilder:
        """Return the builder of this rank's graph of one mini-batch. Local."""
        ctx, chooser = self.ctx, self.placement.chooser()
        roots, layers = schedule.cell(ctx.rank, 0), len(ctx.model.layers)
        of_rank = (ctx.sampler, roots, ctx.rank_offsets, ctx.rank, layers, chooser)
        return SampledGraphBuilder(key, schedule.roots, *of_rank)

    def request(self, minibatch: MiniBatch) -> None:
        super().request(minibatch)
        (micro_batch,) = minibatch.micro_batches
        micro_batch.tensors = micro_batch.on_device(self.ctx.device)
        minibatch.feeds = [feeds_of(self.ctx, graph_of(minibatch), micro_batch.tensors)]

    def predict_draws(self, minibatch: MiniBatch, traffic: Traffic) -> None:
        """Add the draws of each layer's destinations; of those that get sums, edges are named to the owners."""
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
        """Add the ids of the vertices that ranks compute for each other, too."""
        super().predict_request(minibatch, traffic)
        ctx = self.ctx
        id_bytes, nothing = IdCodec.any_id(ctx.rank_offsets).id_bytes, np.zeros(ctx.ranks, np.int64)
        for plan in graph_of(minibatch).plans:
            asked = [each.received_counts for each in (plan.rows, plan.by_kind) if each is not None]
            # The first layer names no rows, in a message of its own; so do sums the rows among them.
            empty = [nothing] * ((plan.rows is None) + (plan.kind == PARTIAL))
            for received in [*empty, *asked]:
                traffic.add_request(ctx.rank, received, id_bytes, "activations", 0)
            traffic.add_gather(ctx.rank, np.float64().nbytes * len(KINDS), "control")


def _minibatch(schedule: Schedule, key: DrawKey, graph: LayerGraph) -> MiniBatch:
    return MiniBatch(schedule, key, [MicroBatch(graph.roots, graph.blocks, None)], graph=graph)
