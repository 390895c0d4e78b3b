"""`raw`: feature rows travel as they are, each once per mini-batch (LeapGNN's pre-gathering)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from leapmpi.engine.exchange.fetched_inputs import FetchedInputsMode, predict_rows
from leapmpi.engine.minibatch import MicroBatch, MiniBatch
from leapmpi.nn.layer import Layer
from leapmpi.plan.traffic_model import Traffic


class Raw(FetchedInputsMode):
    """Fetches the union of all micro-batches' input rows before the weights are needed."""

    order = 2
    moves_raw_rows = True
    description = "raw rows of vertices at home elsewhere"

    @classmethod
    def serves_all(cls, layers: Sequence[Layer]) -> bool:
        """All read the same rows."""
        return True

    def read(self, minibatch: MiniBatch) -> np.ndarray:
        """The distinct vertices, int64, whose rows are fetched. Local."""
        return union(minibatch.micro_batches, self.number)

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Distinct remote rows of the mini-batch that are not cached, each once as id and as row, and its gradient."""
        inputs = self.ctx.inputs(self.number)
        request = inputs.request(self.read(minibatch))
        rows = inputs.answer_bytes(request)
        returned = inputs.returned_row_bytes if minibatch.drops else 0
        return len(request.remote_ids) * (inputs.id_codec.id_bytes + returned) + int(rows.sum())

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """The union of input rows: ids out, rows in."""
        predict_rows(self.ctx, self.number, self.read(minibatches[self.ctx.rank]), traffic)

    def held_bytes(self, minibatch: MiniBatch) -> int:
        """Remote rows as they arrived and as they were requested, and a copy of all unless they are read in place."""
        inputs, rows = self.ctx.inputs(self.number), self.read(minibatch)
        missing = inputs.missing(rows)
        copied = 0 if self.ctx.scatters else len(rows)
        learns = (missing + len(rows)) * inputs.returned_row_bytes
        return 2 * missing * inputs.sent_row_bytes + copied * self.ctx.input_row_bytes + learns

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """Nothing is copied of rows that are read where they lie."""
        return super().step_bytes(micro_batch, alone or self.ctx.scatters)

    def request(self, minibatch: MiniBatch) -> None:
        """Request the rows. Collective."""
        inputs, rows = self.ctx.inputs(self.number), self.read(minibatch)
        minibatch.row_exchange = inputs.prepare(rows, self.ctx.scatters, learns=minibatch.drops)

    def outputs(self, minibatch: MiniBatch, number: int) -> Tensor:
        """From the micro-batch's rows of the union."""
        micro_batch, rows = minibatch.micro_batches[number], minibatch.features
        blocks = self.tensors(micro_batch)
        assert rows is not None, "`request` has requested them, and the mini-batch is complete"
        if micro_batch.positions is not None:
            rows = rows[micro_batch.positions]
        if self.number == 0:
            return self.ctx.model(blocks, rows, minibatch.dropout)
        first = self.layer(blocks[-1 - self.number], rows.to(self.layer.bias.dtype), minibatch.dropout)
        return self.ctx.model.after(self.number, blocks, first, minibatch.dropout)


def union(micro_batches: list[MicroBatch], layer: int = 0) -> np.ndarray:
    """Distinct vertices that `layer` reads in all micro-batches: int64, ascending where there are several.

    Sets each micro-batch's `positions` in them (pre-gathering, LeapGNN section 3).
    """
    inputs = [micro_batch.block(layer).src for micro_batch in micro_batches]
    if len(inputs) == 1:
        return inputs[0]
    rows, inverse = np.unique(np.concatenate(inputs), return_inverse=True)
    begin = 0
    for micro_batch, ids in zip(micro_batches, inputs, strict=True):
        micro_batch.positions = inverse[begin : begin + len(ids)]
        begin += len(ids)
    return rows


MODE = Raw
