"""One layer of a full batch, forward and backward, and its exchange of rows with other ranks.

A step is given the output of the layer below on this rank (for the first layer: feature rows) and computes the layer's
output; later it is given the gradient of that, lets the weights learn, and returns the gradient of the output below.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from leapmpi.engine.context import RankContext
from leapmpi.full_batch.layer_graphs import LayerPlan, RowRoutes
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.gradient import pass_back
from leapmpi.nn.layer import Layer
from leapmpi.nn.rows import Rows
from leapmpi.nn.tensors import BlockTensors


class Exchange:
    """Rows that go to other ranks, and come from them; their gradients go the other way. Made once."""

    def __init__(self, ctx: RankContext, sent_counts: np.ndarray, received_counts: np.ndarray) -> None:
        self.ctx, self.sent_counts, self.received_counts = ctx, sent_counts, received_counts
        self.received = int(received_counts.sum())
        self.sent = int(sent_counts.sum())

    def start(self, rows: Tensor) -> Callable[[], Tensor]:
        """Send `rows` (float[sent, width], by rank); what is returned waits for those that arrive. Collective."""
        return self._start(rows, self.sent_counts, self.received_counts)

    def start_back(self, gradient: Tensor) -> Callable[[], Tensor]:
        """Send the `gradient` of what arrived back; what is returned waits for that of what was sent. Collective."""
        return self._start(gradient, self.received_counts, self.sent_counts)

    def add(self, returned: Tensor, places: Tensor, target: Tensor) -> None:
        """Add `returned` to rows `places` of `target`, rank by rank: in one order on every device. Local."""
        counts = self.sent_counts.tolist()
        for place, part in zip(places.split(counts), returned.split(counts), strict=True):
            target.index_add_(0, place, part)

    def _start(self, rows: Tensor, counts: np.ndarray, arriving_counts: np.ndarray) -> Callable[[], Tensor]:
        arriving = rows.new_empty((int(arriving_counts.sum()), rows.shape[1]))
        with self.ctx.phases("exchange"):
            end = self.ctx.communicator.start_exchange(rows, counts, arriving, arriving_counts, "activations")

        def finish() -> Tensor:
            with self.ctx.phases("exchange"):
                end()
            return arriving

        return finish


class HiddenInput:
    """The matrix that a layer above the first reads, of own rows and of those that other ranks send."""

    def __init__(self, ctx: RankContext, routes: RowRoutes) -> None:
        self.ctx, self.count = ctx, routes.count
        self.exchange = Exchange(ctx, routes.sent_counts, routes.received_counts)
        device = ctx.device
        self.local_positions = torch.from_numpy(routes.local_positions).to(device)
        self.local_rows = torch.from_numpy(routes.local_rows).to(device)
        self.received_positions = torch.from_numpy(routes.received_positions).to(device)
        self.sent_rows = torch.from_numpy(routes.sent_rows).to(device)

    def matrix(self, below: Tensor) -> Tensor:
        """float[count, width], a leaf, from the output `below` of the layer below. Collective."""
        self._below = below.shape
        with self.ctx.phases("compute"):
            sent = below.index_select(0, self.sent_rows)
        finish = self.exchange.start(sent)
        # Own rows are put in place while others travel.
        with self.ctx.phases("compute"):
            rows = below.new_empty((self.count, below.shape[1]))
            rows[self.local_positions] = below[self.local_rows]
        arrived = finish()
        with self.ctx.phases("compute"):
            rows[self.received_positions] = arrived
        return rows.requires_grad_(torch.is_grad_enabled())

    def back(self, rows: Tensor) -> Tensor:
        """The gradient of the output below on this rank, from those of the matrix `rows` on all. Collective."""
        with self.ctx.phases("compute"):
            of_rows = torch.zeros_like(rows) if rows.grad is None else rows.grad
            sent = of_rows.index_select(0, self.received_positions)
        finish = self.exchange.start_back(sent)
        with self.ctx.phases("compute"):
            gradient = of_rows.new_zeros(self._below)
            gradient[self.local_rows] = of_rows.index_select(0, self.local_positions)
        returned = finish()
        with self.ctx.phases("compute"):
            self.exchange.add(returned, self.sent_rows, gradient)
        return gradient


class LayerStep(ABC):
    """One layer on this rank. Call `forward`, and in training `backward`. Both are collective."""

    def __init__(self, ctx: RankContext, layer: Layer, block: BlockTensors, plan: LayerPlan) -> None:
        self.ctx, self.layer, self.block = ctx, layer, block
        self.hidden = None if plan.rows is None else HiddenInput(ctx, plan.rows)

    def forward(self, below: Rows, key: DropoutKey | None) -> Tensor:
        """The layer's output, float[n_dst, out], from `below`; `key` is that of dropout masks."""
        if self.hidden is None:
            rows = below.to(self.layer.bias.dtype)
        else:
            assert isinstance(below, Tensor), "hidden rows are dense"
            rows = self.hidden.matrix(below.detach())
        self._output = self.output(rows, key)
        self._rows = rows
        return self._output

    def backward(self, gradient: Tensor) -> Tensor | None:
        """Let the weights learn from the output's `gradient`; that of the output below, None for the first layer."""
        output, rows = self._output, self._rows
        del self._output, self._rows
        with self.ctx.phases("compute"):
            pass_back(output, gradient)
        del output, gradient
        self.learn()
        if self.hidden is None:
            return None
        assert isinstance(rows, Tensor), "hidden rows are dense"
        return self.hidden.back(rows)

    @abstractmethod
    def output(self, rows: Rows, key: DropoutKey | None) -> Tensor:
        """The layer's output from the matrix `rows`."""

    def learn(self) -> None:
        """Pass gradients on from what stands between the matrix and the output, where something does."""
        return


class RawStep(LayerStep):
    """The layer as a whole, on rows of all sources."""

    def output(self, rows: Rows, key: DropoutKey | None) -> Tensor:
        with self.ctx.phases("compute"):
            return self.layer(self.block, rows, key)
