"""Mini-batches computed layer by layer, each row by its owner: blocks and routes are made in every iteration."""

from __future__ import annotations

from leapmpi.engine.engine import Preparation
from leapmpi.exchange.layer_graphs import (
    PARTIAL,
    GraphBuilder,
    LayerGraph,
    SampledGraphBuilder,
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

    def _builder(self, schedule: Schedule, key: DrawKey) -> GraphBuilder:
        """Return the builder of this rank's graph of one mini-batch. Local."""
        ctx, chooser = self.ctx, self.placement.chooser()
        roots, layers = schedule.cell(ctx.rank, 0), len(ctx.model.layers)
        of_rank = (ctx.sampler, roots, ctx.rank_offsets, ctx.rank, layers, chooser)
        return SampledGraphBuilder(key, schedule.roots, *of_rank)

    def request(self, minibatch: MiniBatch) -> None:
        super().request(minibatch)
        if not self.ctx.communicator.carries:
            return
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


def _minibatch(schedule: Schedule, key: DrawKey, graph: LayerGraph) -> MiniBatch:
    return MiniBatch(schedule, key, [MicroBatch(graph.roots, graph.blocks, None)], graph=graph)
