"""`raw`: feature rows travel unchanged, each once per mini-batch (LeapGNN's pre-gathering)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from leapmpi.exchange.layer_feed import LayerFeed
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.mode import ExchangeMode, ModeMember
from leapmpi.nn.layer import Layer
from leapmpi.nn.rows import Rows, select


class Raw(ExchangeMode):
    """The mode that fetches the union of all micro-batches' input rows before the weights are needed."""

    order = 2
    moves_raw_rows = True
    description = "feature rows of remote vertices"

    @classmethod
    def serves_all(cls, layers: Sequence[Layer]) -> bool:
        """Return True: all read the same rows."""
        return True

    def read(self, minibatch: MiniBatch) -> np.ndarray:
        """Return the distinct vertices, int64, whose rows are fetched. Local."""
        return union(minibatch.micro_batches)

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Count each distinct remote row of the mini-batch that is not cached: its id, its values and its gradient."""
        inputs = self.ctx.features
        request = inputs.request(self.read(minibatch))
        rows = inputs.answer_bytes(request)
        returned = inputs.returned_bytes(request) if minibatch.drops else 0
        return len(request.remote_ids) * inputs.id_codec.id_bytes + returned + int(rows.sum())

    def held_bytes(self, minibatch: MiniBatch) -> int:
        """Count remote rows on both sides of their exchange, and a copy of all rows unless they are read in place."""
        inputs, rows = self.ctx.features, self.read(minibatch)
        missing = inputs.missing(rows)
        copied = 0 if self.ctx.scatters else len(rows)
        gradients = (missing + len(rows)) * inputs.returned_row_bytes
        return 2 * missing * inputs.sent_row_bytes + copied * self.ctx.input_row_bytes + gradients

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """Estimate as the base does; rows that are read in place are not copied."""
        return super().step_bytes(micro_batch, alone or self.ctx.scatters)

    def request(self, minibatch: MiniBatch) -> None:
        """Request the rows. Collective."""
        rows = self.read(minibatch)
        minibatch.row_exchange = self.ctx.features.prepare(rows, self.ctx.scatters, trains=minibatch.drops)

    def feeds(self, minibatch: MiniBatch, number: int) -> tuple[Sequence[LayerFeed], Rows | None]:
        """Return no feeds, and the micro-batch's rows of the union."""
        positions, rows = minibatch.micro_batches[number].positions, minibatch.features
        assert rows is not None, "`request` has requested them, and the mini-batch is complete"
        chosen = None if positions is None else torch.from_numpy(positions).to(rows.device)
        return [], select(rows, chosen)


def union(micro_batches: list[MicroBatch]) -> np.ndarray:
    """List the distinct vertices that the first layer reads in all micro-batches: int64, ascending where several.

    Sets each micro-batch's `positions` in them (pre-gathering, LeapGNN section 3).
    """
    inputs = [micro_batch.first_block.src for micro_batch in micro_batches]
    if len(inputs) == 1 and micro_batches[0].first_block.bound is None:
        return inputs[0]
    # Micro-batches share many rows: fetched one by one, they would cost more bytes than a single batch.
    rows, inverse = np.unique(np.concatenate(inputs), return_inverse=True)
    begin = 0
    for micro_batch, ids in zip(micro_batches, inputs, strict=True):
        micro_batch.positions = inverse[begin : begin + len(ids)]
        begin += len(ids)
    return rows


MEMBER = ModeMember(Raw)
