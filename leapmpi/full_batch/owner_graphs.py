"""Mini-batches computed layer by layer, each row by its owner: blocks and routes are made in every iteration."""

from __future__ import annotations

from leapmpi.engine.engine import Preparation
from leapmpi.exchange.layer_graphs import (
    GraphBuilder,
    LayerGraph,
    SampledGraphBuilder,
    build_here,
)
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.full_batch.full_batch_placement import FullBatchPlacement
from leapmpi.full_batch.layer_by_layer import feeds_of, graph_of
from leapmpi.plan.schedule import Schedule
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


def _minibatch(schedule: Schedule, key: DrawKey, graph: LayerGraph) -> MiniBatch:
    return MiniBatch(schedule, key, [MicroBatch(graph.roots, graph.blocks, None)], graph=graph)
