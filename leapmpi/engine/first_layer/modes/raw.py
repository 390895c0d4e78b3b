"""`raw`: feature rows travel as they are, each once per iteration (LeapGNN's pre-gathering)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from leapmpi.engine.first_layer.base import FirstLayerMode

if TYPE_CHECKING:
    from leapmpi.engine.minibatch import MicroBatch, MiniBatch
    from leapmpi.plan.traffic_model import Traffic


class Raw(FirstLayerMode):
    """Fetches the union of all cells' input rows before the weights are needed."""

    @staticmethod
    def refusal(model: Any) -> str | None:
        """None: raw rows serve every model."""
        return None

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Distinct remote rows of the iteration that are not cached, each once as id and as features."""
        features = self.ctx.features
        request = features.request(union(minibatch.micro_batches))
        rows = features.answer_bytes(request, exact=not minibatch.drops)
        return len(request.remote_ids) * features.ranges.id_bytes + int(rows.sum())

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """The union of input rows: ids out, rows in."""
        ctx, rank = self.ctx, self.ctx.communicator.rank
        request = ctx.features.request(union(minibatches[rank].micro_batches))
        traffic.add_request(rank, request.remote_counts, ctx.features.ranges.id_bytes, "features", 0)
        traffic.add_answers(rank, "features", ctx.features.answer_bytes(request))
        traffic.add_rows(rank, "local", len(request.own_ids))
        traffic.add_rows(rank, "remote", len(request.remote_ids))
        traffic.add_rows(rank, "cached", len(request.cached_slots))

    def held_bytes(self, minibatch: MiniBatch) -> int:
        """Remote rows as they arrived and as they were asked for, and a copy of all unless they are read there."""
        features, rows = self.ctx.features, union(minibatch.micro_batches)
        missing = features.missing(rows)
        decoded = missing if features.encoding else 0
        copied = decoded if self.ctx.scatters else len(rows)
        return 2 * missing * features.sent_row_bytes + copied * self.ctx.input_row_bytes

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """Nothing is copied of rows that are read where they lie."""
        return super().step_bytes(micro_batch, alone or self.ctx.scatters)

    def ask(self, minibatch: MiniBatch) -> None:
        """Ask for the rows; what is scored reads them exactly. Collective."""
        minibatch.row_exchange = self.ctx.features.prepare(
            union(minibatch.micro_batches), exact=not minibatch.drops, scattered=self.ctx.scatters
        )

    def train(self, minibatch: MiniBatch, number: int, labels: Any) -> float:
        """Forward and backward on the rows at hand."""
        with self.ctx.phases("compute"):
            loss = self.loss(minibatch, number, self._outputs(minibatch, number), labels)
            loss.backward()
        return float(loss.detach())

    @torch.no_grad()
    def logits(self, minibatch: MiniBatch, number: int) -> Any:
        """Forward on the rows at hand."""
        with self.ctx.phases("compute"):
            return self._outputs(minibatch, number)

    def _outputs(self, minibatch: MiniBatch, number: int) -> Any:
        micro_batch = minibatch.micro_batches[number]
        features = minibatch.features if micro_batch.positions is None else minibatch.features[micro_batch.positions]
        return self.ctx.model(self.tensors(micro_batch), features, minibatch.dropout)


def union(micro_batches: list[MicroBatch]) -> np.ndarray:
    """Distinct input vertices of all cells; sets each cell's positions in them (pre-gathering, LeapGNN section 3)."""
    if len(micro_batches) == 1:
        return micro_batches[0].blocks[-1].src
    inputs = [micro_batch.blocks[-1].src for micro_batch in micro_batches]
    rows, inverse = np.unique(np.concatenate(inputs), return_inverse=True)
    begin = 0
    for micro_batch, ids in zip(micro_batches, inputs, strict=True):
        micro_batch.positions = inverse[begin : begin + len(ids)]
        begin += len(ids)
    return rows


MODE = Raw
