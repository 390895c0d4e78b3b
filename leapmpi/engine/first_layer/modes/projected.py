"""`projected`: a remote row arrives multiplied by the first layer's weights, H numbers instead of F.

Serves every model whose layers offer the split, attention included; gradients of the projected rows travel back, and
the owner adds its share of the weights' gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.engine.first_layer.base import ExchangedMode, ExchangePlan, no_residual
from leapmpi.features.row_request import RowRequest
from leapmpi.plan.homes import home_of

if TYPE_CHECKING:
    from leapmpi.engine.minibatch import MicroBatch, MiniBatch
    from leapmpi.nn.tensors import BlockTensors
    from leapmpi.plan.traffic_model import Traffic


class Projected(ExchangedMode):
    """The owner projects the rows it is asked for; the matrix of the first layer holds one row per source."""

    @staticmethod
    def refusal(model: Any) -> str | None:
        """Refuses first layers with a residual."""
        return no_residual(model)

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Remote sources of every cell: an id, a projected row and its gradient."""
        ctx, layer = self.ctx, self.ctx.model.layers[0]
        homes = (home_of(micro_batch.blocks[-1].src, ctx.rank_offsets) for micro_batch in minibatch.micro_batches)
        remote = sum(int((home != ctx.communicator.rank).sum()) for home in homes)
        return remote * (ctx.features.ranges.id_bytes + 2 * layer.projected_width * layer.bias.element_size())

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """Of each cell, the ids of remote sources, their projected rows and the gradients."""
        ctx, layer, rank = self.ctx, self.ctx.model.layers[0], self.ctx.communicator.rank
        width = layer.projected_width * layer.bias.element_size()
        for micro_batch in minibatches[rank].micro_batches:
            request = RowRequest(micro_batch.blocks[-1].src, ctx.rank_offsets, rank)
            ids = ctx.features.ranges.id_bytes
            traffic.add_request(rank, request.remote_counts, ids, "activations", width, width)
            traffic.add_rows(rank, "local", len(request.own_ids))
            traffic.add_rows(rank, "remote", len(request.remote_ids))

    def ask_for(self, minibatch: MiniBatch, micro_batch: MicroBatch) -> ExchangePlan:
        """Ask the owners of remote sources for their projected rows. Collective."""
        ctx, ids = self.ctx, micro_batch.blocks[-1].src
        request = RowRequest(ids, ctx.rank_offsets, ctx.communicator.rank)
        wanted, wanted_counts = ctx.communicator.exchange_ids(
            request.remote_ids, request.remote_counts, ctx.features.ranges
        )
        ctx.communicator.byte_counters.add_rows("local", len(request.own_ids))
        ctx.communicator.byte_counters.add_rows("remote", len(request.remote_ids))
        return ExchangePlan(
            total=len(ids),
            own_positions=request.own_positions,
            asked_positions=request.remote_positions,
            asked_counts=request.remote_counts,
            answer_counts=wanted_counts,
            source=np.concatenate((request.own_ids, wanted)),
        )

    def compute(self, minibatch: MiniBatch, exchange_plan: ExchangePlan) -> Any:
        """Project own and asked rows."""
        ctx = self.ctx
        rows = ctx.features.own(exchange_plan.source, ctx.scatters)
        original = self._index(ctx.sampler.topology.original_id[exchange_plan.source])
        return ctx.model.layers[0].projected(rows, original, minibatch.dropout)

    def first_sums(self, minibatch: MiniBatch, block: BlockTensors, rows: Any) -> Any:
        """Aggregate the projected rows."""
        return self.ctx.model.layers[0].from_projected(block, rows, minibatch.dropout)


MODE = Projected
