"""Forward and backward of a full batch, one layer after the other; hidden rows and their gradients cross ranks.

Rows of vertices that this rank computed are read from its own output of the layer below, others arrive from their
homes. Gradients of the latter go back and are added there, before the layer below learns: the gradient is that of one
process, wherever a vertex was computed, since its dropout masks depend on the vertex and not on the rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from leapmpi.engine.exchange.modes.raw import Raw
from leapmpi.engine.minibatch import MicroBatch, MiniBatch
from leapmpi.full_batch.layer_graphs import LayerGraph, Routes
from leapmpi.nn.gradient import pass_back
from leapmpi.nn.rows import Rows
from leapmpi.plan.traffic_model import Traffic


class LayerByLayer(Raw):
    """Raw feature rows for the first layer; rows of hidden layers from the ranks that computed them.

    The LayerGraph of a mini-batch stands in its `exchange_plans`.
    """

    description = "raw rows and hidden rows of vertices at home elsewhere, and gradients of the latter"

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """The rows of the first layer; hidden rows of every layer above, and their gradients."""
        super().predict(minibatches, traffic)
        rank, size = self.ctx.rank, self.layer.bias.element_size()
        graph: LayerGraph = minibatches[rank].exchange_plans[0]
        for layer, routes in zip(self.ctx.model.layers[1:], graph.routes, strict=True):
            traffic.add_exchange(rank, routes.received_counts, "activations", layer.in_dim * size)

    def train(self, minibatch: MiniBatch, number: int, labels: Tensor) -> float:
        """Forward through all layers, the loss, and backward through them. Collective."""
        graph: LayerGraph = minibatch.exchange_plans[number]
        inputs, outputs = self._forward(minibatch, number, graph)

        # The loss, of the roots' rows of the layers that it reads.
        with self.ctx.phases("compute"):
            tops = [output.detach()[: len(graph.roots)].requires_grad_() for output in outputs]
            loss = self.loss(minibatch, number, self._logits(minibatch, number, tops), labels)
            loss.backward()
            gradients = [_padded(top.grad, output) for top, output in zip(tops, outputs, strict=True)]

        # From the last layer down; each gives the one below the gradients of its rows.
        for layer in reversed(range(len(outputs))):
            with self.ctx.phases("compute"):
                gradient, output = gradients.pop(), outputs.pop()
                pass_back(output, gradient)
            if layer:
                self._return(inputs.pop(), graph.routes[layer - 1], gradients[layer - 1])
        return float(loss.detach())

    @torch.no_grad()
    def logits(self, minibatch: MiniBatch, number: int) -> Tensor:
        graph: LayerGraph = minibatch.exchange_plans[number]
        _, outputs = self._forward(minibatch, number, graph)
        with self.ctx.phases("compute"):
            return self._logits(minibatch, number, [output[: len(graph.roots)] for output in outputs])

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """With the inputs of hidden layers, which are copies, and their gradients."""
        size = self.layer.bias.element_size()
        layers = self.ctx.model.layers
        hidden = (2 * block.n_src * layer.in_dim for layer, block in zip(layers[1:], micro_batch.blocks, strict=False))
        return super().step_bytes(micro_batch, alone) + size * sum(hidden)

    def _forward(self, minibatch: MiniBatch, number: int, graph: LayerGraph) -> tuple[list[Tensor], list[Tensor]]:
        """The inputs of all layers but the first, and the outputs of all. Collective."""
        ctx, blocks = self.ctx, self.tensors(minibatch.micro_batches[number])
        rows: Rows | None = minibatch.features
        assert rows is not None, "`request` has requested them, and the mini-batch is complete"
        inputs: list[Tensor] = []
        outputs: list[Tensor] = []
        for layer, block in zip(ctx.model.layers, reversed(blocks), strict=True):
            if outputs:
                rows = self._arrived(outputs[-1], graph.routes[len(inputs)], block.n_src)
                inputs.append(rows)
            with ctx.phases("compute"):
                outputs.append(layer(block, rows.to(layer.bias.dtype), minibatch.dropout))
        return inputs, outputs

    def _logits(self, minibatch: MiniBatch, number: int, tops: Sequence[Tensor]) -> Tensor:
        """The model's outputs from the roots' rows of each layer. Local."""
        head = self.ctx.model.head
        if head is None:
            return tops[-1]
        block = self.tensors(minibatch.micro_batches[number])[0]
        return head(tops, block.src_original[: block.n_dst], minibatch.dropout)

    def _arrived(self, output: Tensor, routes: Routes, count: int) -> Tensor:
        """The input of a layer, float[count, width], from the `output` of the one below on all ranks. Collective."""
        ctx, below = self.ctx, output.detach()
        with ctx.phases("compute"):
            sent = below.index_select(0, self._on_device(routes.sent_rows))
            arriving = below.new_empty((len(routes.received_positions), below.shape[1]))
        with ctx.phases("exchange"):
            finish = ctx.communicator.start_exchange(
                sent, routes.sent_counts, arriving, routes.received_counts, "activations"
            )
        # Own rows are put in place while others travel.
        with ctx.phases("compute"):
            rows = below.new_empty((count, below.shape[1]))
            rows[self._on_device(routes.local_positions)] = below[self._on_device(routes.local_rows)]
        with ctx.phases("exchange"):
            finish()
        with ctx.phases("compute"):
            rows[self._on_device(routes.received_positions)] = arriving
        return rows.requires_grad_(torch.is_grad_enabled())

    def _return(self, rows: Tensor, routes: Routes, gradient: Tensor) -> None:
        """Add the gradients of the input `rows` to the `gradient` of the output below, at home. Collective."""
        ctx = self.ctx
        with ctx.phases("compute"):
            of_rows = torch.zeros_like(rows) if rows.grad is None else rows.grad
            sent = of_rows.index_select(0, self._on_device(routes.received_positions))
            returned = of_rows.new_empty((len(routes.sent_rows), of_rows.shape[1]))
        with ctx.phases("exchange"):
            finish = ctx.communicator.start_exchange(
                sent, routes.received_counts, returned, routes.sent_counts, "activations"
            )
        with ctx.phases("compute"):
            own = of_rows.index_select(0, self._on_device(routes.local_positions))
            gradient.index_add_(0, self._on_device(routes.local_rows), own)
        with ctx.phases("exchange"):
            finish()
        # Rank by rank, so that sums are taken in the same order on every device.
        with ctx.phases("compute"):
            counts = routes.sent_counts.tolist()
            places = self._on_device(routes.sent_rows).split(counts)
            for place, part in zip(places, returned.split(counts), strict=True):
                gradient.index_add_(0, place, part)

    def _on_device(self, positions):
        return torch.from_numpy(positions).to(self.ctx.device)


def _padded(of_roots: Tensor | None, output: Tensor) -> Tensor:
    """The gradient of all rows of `output`, given that of the first ones, if they have any."""
    gradient = torch.zeros_like(output)
    if of_roots is not None:
        gradient[: len(of_roots)] = of_roots
    return gradient
