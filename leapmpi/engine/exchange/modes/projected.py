"""`projected`: a remote row arrives multiplied by the layer's weights, H numbers instead of F.

Serves every layer that offers the split, attention included. Gradients of the projected rows travel back, and the owner
adds its share of the weights' gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from leapmpi.engine.exchange.computed_rows import ComputedRows, ComputedRowsMode, ExchangePlan
from leapmpi.engine.minibatch import MicroBatch, MiniBatch
from leapmpi.features.row_exchange import RowRequest
from leapmpi.nn.tensors import BlockTensors
from leapmpi.plan.homes import home_of
from leapmpi.plan.traffic_model import Traffic


class Projected(ComputedRowsMode):
    """The owner projects the rows that are requested; the matrix of the layer holds one row per source."""

    order = 3
    description = "projected rows of vertices at home elsewhere and their gradients"

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Remote sources of every micro-batch: an id, a projected row and its gradient."""
        ctx, layer = self.ctx, self.layer
        homes = (home_of(each.block(self.number).src, ctx.rank_offsets) for each in minibatch.micro_batches)
        remote = sum(int((home != ctx.rank).sum()) for home in homes)
        id_bytes = ctx.inputs(self.number).id_codec.id_bytes
        return remote * (id_bytes + 2 * layer.projected_width * layer.bias.element_size())

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """Of each micro-batch, the ids of remote sources, their projected rows and the gradients."""
        ctx, layer = self.ctx, self.layer
        width = layer.projected_width * layer.bias.element_size()
        id_bytes = ctx.inputs(self.number).id_codec.id_bytes
        for micro_batch in minibatches[ctx.rank].micro_batches:
            request = RowRequest(micro_batch.block(self.number).src, ctx.rank_offsets, ctx.rank)
            traffic.add_request(ctx.rank, request.remote_counts, id_bytes, "activations", width, width)
            traffic.add_rows(ctx.rank, "local", len(request.local_ids))
            traffic.add_rows(ctx.rank, "remote", len(request.remote_ids))

    def plan_exchange(self, minibatch: MiniBatch, micro_batch: MicroBatch) -> ExchangePlan:
        """Request the projected rows of remote sources from their owners. Collective."""
        ctx, ids = self.ctx, micro_batch.block(self.number).src
        request = RowRequest(ids, ctx.rank_offsets, ctx.rank)
        requested, answer_counts = ctx.communicator.exchange_ids(
            request.remote_ids, request.remote_counts, ctx.inputs(self.number).id_codec
        )
        ctx.communicator.byte_counters.add_rows("local", len(request.local_ids))
        ctx.communicator.byte_counters.add_rows("remote", len(request.remote_ids))
        return ExchangePlan(
            total=len(ids),
            local_positions=request.local_positions,
            remote_positions=request.remote_positions,
            remote_counts=request.remote_counts,
            answer_counts=answer_counts,
            source=np.concatenate((request.local_ids, requested)),
        )

    def computed(self, minibatch: MiniBatch, plan: ExchangePlan) -> ComputedRows:
        ctx = self.ctx
        rows = ctx.inputs(self.number).local(plan.source, ctx.scatters)
        original = self._on_device(ctx.sampler.topology.original_id[plan.source])
        return ComputedRows(self.layer.projected(rows, original, minibatch.dropout), plan.local_count)

    def first_output(self, minibatch: MiniBatch, block: BlockTensors, rows: Tensor) -> Tensor:
        return self.layer.finish(None, self.layer.from_projected(block, rows, minibatch.dropout), None)


MODE = Projected
