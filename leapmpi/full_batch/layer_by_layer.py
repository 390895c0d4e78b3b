"""Forward and backward of a full batch, one layer after the other; hidden rows and their gradients cross ranks.

Rows of vertices that this rank computed are read from its own output of the layer below, others arrive from their
homes. Gradients of the latter go back and are added there, before the layer below learns: the gradient is that of one
process, wherever a vertex was computed, since its dropout masks depend on the vertex and not on the rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from leapmpi.engine.exchange.modes.raw import Raw
from leapmpi.engine.minibatch import MicroBatch, MiniBatch
from leapmpi.full_batch.layer_graphs import PARTIAL, PROJECTED, RAW, LayerGraph
from leapmpi.full_batch.layer_steps import LayerStep
from leapmpi.nn.layer import Layer
from leapmpi.nn.partial_form import SUM
from leapmpi.nn.rows import Rows
from leapmpi.plan.traffic_model import Traffic

EDGE_BYTES = 28
"""What an edge of a block that is kept takes: its list by source, one with edges to themselves, weights."""

VERTEX_BYTES = 24
"""What a source of such a block takes."""


class KeptGraph:
    """The LayerGraph of a mini-batch and, in a job, the steps that compute its layers, from the first on."""

    def __init__(self, graph: LayerGraph) -> None:
        self.graph = graph
        self.steps: list[LayerStep] = []


class LayerByLayer(Raw):
    """Raw feature rows for the first layer; for layers above what the ranks compute.

    The KeptGraph of a mini-batch stands in its `exchange_plans`.
    """

    description = "rows of the first and of hidden layers of vertices at home elsewhere, and gradients"

    def read(self, minibatch: MiniBatch) -> np.ndarray:
        """What the first layer reads as features."""
        return graph_of(minibatch).fed

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """Feature rows that are not kept; hidden rows, projected rows and sums of every layer, and their gradients."""
        super().predict(minibatches, traffic)
        rank, size = self.ctx.rank, self.layer.bias.element_size()
        for layer, plan in zip(self.ctx.model.layers, graph_of(minibatches[rank]).plans, strict=True):
            if plan.rows:
                traffic.add_exchange(rank, plan.rows.received_counts, "activations", layer.in_dim * size)
            if plan.by_kind:
                width = kind_width(layer, plan.kind)
                traffic.add_exchange(rank, plan.by_kind.received_counts, "activations", width * size)

    def train(self, minibatch: MiniBatch, number: int, labels: Tensor) -> float:
        """Forward through all layers, the loss, and backward through them. Collective."""
        outputs = self._forward(minibatch, number)
        steps, roots = minibatch.exchange_plans[number].steps, len(minibatch.micro_batches[number].roots)

        # The loss, of the roots' rows of the layers that it reads.
        with self.ctx.phases("compute"):
            tops = [output.detach()[:roots].requires_grad_() for output in outputs]
            loss = self.loss(minibatch, number, self._logits(minibatch, number, tops), labels)
            loss.backward()
            gradients = [_padded(top.grad, output) for top, output in zip(tops, outputs, strict=True)]
        outputs.clear()

        # From the last layer down; each gives the one below the gradients of its rows.
        for step in reversed(steps):
            gradient = gradients.pop()
            step.backward(gradient, gradients[-1] if gradients else None)
        return float(loss.detach())

    @torch.no_grad()
    def logits(self, minibatch: MiniBatch, number: int) -> Tensor:
        outputs, roots = self._forward(minibatch, number), len(minibatch.micro_batches[number].roots)
        with self.ctx.phases("compute"):
            return self._logits(minibatch, number, [output[:roots] for output in outputs])

    def held_bytes(self, minibatch: MiniBatch) -> int:
        """With the blocks, of which each has vertices of its own, and the lists of their edges."""
        graph = graph_of(minibatch)
        lists = sum(VERTEX_BYTES * block.n_src + EDGE_BYTES * block.edges for block in graph.blocks)
        sums = 0
        if graph.summed is not None:
            sums = graph.plans[0].block.n_dst * self.layer.in_dim * self.layer.bias.element_size()
        return super().held_bytes(minibatch) + lists + sums

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """With the inputs of hidden layers, which are copies, and their gradients."""
        size = self.layer.bias.element_size()
        layers = self.ctx.model.layers
        hidden = (
            2 * block.n_src * layer.in_dim for layer, block in zip(layers[:0:-1], micro_batch.blocks, strict=False)
        )
        return super().step_bytes(micro_batch, alone) + size * sum(hidden)

    def _forward(self, minibatch: MiniBatch, number: int) -> list[Tensor]:
        """The outputs of all layers. Collective."""
        rows: Rows | None = minibatch.features
        assert rows is not None, "`request` has requested them, and the mini-batch is complete"
        outputs: list[Tensor] = []
        for step in minibatch.exchange_plans[number].steps:
            outputs.append(step.forward(outputs[-1] if outputs else rows, minibatch.dropout))
        return outputs

    def _logits(self, minibatch: MiniBatch, number: int, tops: Sequence[Tensor]) -> Tensor:
        """The model's outputs from the roots' rows of each layer. Local."""
        head = self.ctx.model.head
        if head is None:
            return tops[-1]
        block = self.tensors(minibatch.micro_batches[number])[0]
        return head(tops, block.src_original[: block.n_dst], minibatch.dropout)


def graph_of(minibatch: MiniBatch) -> LayerGraph:
    """What this rank computes for a full batch."""
    graph: LayerGraph = minibatch.exchange_plans[0].graph
    return graph


def kind_width(layer: Layer, kind: str) -> int:
    """Numbers in a row that is communicated for `layer`, by the kind."""
    return {PROJECTED: layer.projected_width, PARTIAL: layer.partial_width}.get(kind, layer.in_dim)


def refusal(layer: Layer, kind: str, learned: bool = False) -> str:
    """Why `layer` cannot be fed by `kind`, empty where it can; `learned` says that it reads learned rows."""
    if kind == RAW:
        return ""
    if learned:
        return "learned rows are sent as they are"
    if not layer.projects:
        return "its messages are made of raw rows"
    if layer.reads_destinations:
        return "it adds the raw rows of its destinations"
    if layer.own_width:
        return "its destinations need numbers of their own"
    if kind == PARTIAL and "edge_features" in layer.edge_data:
        return "it reads features of edges, which lie with their destinations"
    if kind == PARTIAL and not (layer.linear and layer.partial_form is SUM):
        return "its aggregate is no sum of rows"
    return ""


def _padded(of_roots: Tensor | None, output: Tensor) -> Tensor:
    """The gradient of all rows of `output`, given that of the first ones, if they have any."""
    gradient = torch.zeros_like(output)
    if of_roots is not None:
        gradient[: len(of_roots)] = of_roots
    return gradient
