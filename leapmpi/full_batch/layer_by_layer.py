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

from leapmpi.engine.context import RankContext
from leapmpi.engine.exchange.modes.raw import Raw
from leapmpi.engine.minibatch import MicroBatch, MiniBatch
from leapmpi.full_batch.layer_graphs import PARTIAL, PROJECTED, RAW, LayerGraph, LayerPlan
from leapmpi.full_batch.steps.layer_step import LayerStep
from leapmpi.full_batch.steps.step_choice import goes_by_owner, sends_again, step_of
from leapmpi.nn.layer import Layer
from leapmpi.nn.rows import Rows
from leapmpi.nn.shares.partial_form import SUM
from leapmpi.nn.tensors import BlockTensors
from leapmpi.plan.traffic_model import Traffic

EDGE_BYTES = 28
"""What an edge of a block that is kept takes: its list by source, one with edges to themselves, weights."""

VERTEX_BYTES = 24
"""What a source of such a block takes."""


class KeptGraph:
    """The LayerGraph of a mini-batch and, in a job, the steps that compute its layers, from the first on.

    by_owner: whether layers that can hold the rows of one other rank at a time do; the same on all ranks.
    """

    def __init__(self, graph: LayerGraph, by_owner: bool = False) -> None:
        self.graph, self.by_owner = graph, by_owner
        self.steps: list[LayerStep] = []
        self.features_stay = False
        """Whether no features cross ranks in any iteration, so that what the first layer reads is brought here once."""

    def make_steps(self, ctx: RankContext, blocks: Sequence[BlockTensors]) -> None:
        """Make the steps, given the tensors of the graph's blocks, from the last layer to the first. Local."""
        parts = zip(ctx.model.layers, reversed(blocks), self.graph.plans, strict=True)
        self.steps = [step_of(ctx, *part, self.by_owner) for part in parts]

    def held_rows(self, layers: Sequence[Layer]) -> list[int]:
        """How many sources of each block, from the last layer to the first, are held at once. Local."""
        parts = list(zip(layers, self.graph.plans, strict=True))
        return [self._held_rows(*each) for each in reversed(parts)]

    def _held_rows(self, layer: Layer, plan: LayerPlan) -> int:
        if plan.rows is None or not (self.by_owner and goes_by_owner(layer, plan)):
            return plan.block.n_src
        return len(plan.rows.local_rows) + int(plan.rows.received_counts.max())

    def moved(self, layer: Layer, plan: LayerPlan) -> int:
        """Numbers that are sent and received for `layer` on this rank, one way and at once. Local."""
        total = 0
        if plan.rows:
            counts = plan.rows.received_counts, plan.rows.sent_counts
            at_once = self.by_owner and goes_by_owner(layer, plan)
            total += layer.in_dim * sum(int(each.max() if at_once else each.sum()) for each in counts)
        if plan.by_kind:
            rows = int(plan.by_kind.received_counts.sum() + plan.by_kind.sent_counts.sum())
            total += kind_width(layer, plan.kind) * rows
        return total


class LayerByLayer(Raw):
    """Raw feature rows for the first layer; for layers above what the ranks compute.

    The KeptGraph of a mini-batch stands in its `exchange_plans`.
    """

    overlaps = True
    description = "rows of the first and of hidden layers of vertices at home elsewhere, and gradients"

    def read(self, minibatch: MiniBatch) -> np.ndarray:
        """What the first layer reads as features."""
        return graph_of(minibatch).fed

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """Feature rows that are not kept; hidden rows, projected rows and sums of every layer, and their gradients."""
        rank, size = self.ctx.rank, self.layer.bias.element_size()
        kept: KeptGraph = minibatches[rank].exchange_plans[0]
        if kept.features_stay:
            for place, count in self.ctx.features.request(kept.graph.fed).read_counts.items():
                traffic.add_rows(rank, place, count)
        else:
            super().predict(minibatches, traffic)
        for layer, plan in zip(self.ctx.model.layers, kept.graph.plans, strict=True):
            if plan.rows:
                traffic.add_exchange(rank, plan.rows.received_counts, "activations", layer.in_dim * size)
                if kept.by_owner and goes_by_owner(layer, plan) and sends_again(layer):
                    traffic.add_answers(rank, "activations", plan.rows.received_counts * layer.in_dim * size)
            if plan.by_kind:
                width = kind_width(layer, plan.kind)
                traffic.add_exchange(rank, plan.by_kind.received_counts, "activations", width * size)

    def collectives(self, time_steps: int) -> int:
        """The rows of each layer, and gradients of all but the first."""
        return 2 * len(self.ctx.model.layers) - 1

    def work(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> tuple[int, int, int]:
        """No edges where sums of features are kept."""
        sources, destinations, edges = super().work(minibatches, traffic)
        return sources, destinations, 0 if graph_of(minibatches[self.ctx.rank]).summed is not None else edges

    def train(self, minibatch: MiniBatch, number: int, labels: Tensor) -> float:
        """Forward through all layers, the loss, and backward through them. Collective."""
        outputs = self._forward(minibatch, number)
        steps, roots = minibatch.exchange_plans[number].steps, len(minibatch.micro_batches[number].roots)

        # The loss, of the roots' rows of the layers that it reads.
        with self.ctx.phases("compute"):
            tops = [output.detach()[:roots].requires_grad_() for output in outputs]
            loss = self.loss(minibatch, number, self._logits(minibatch, number, tops), labels)
            loss.backward()
        outputs.clear()

        # From the last layer down; each gives the one below the gradients of its rows.
        gradient: Tensor | None = None
        for step, top in zip(reversed(steps), reversed(tops), strict=True):
            with self.ctx.phases("compute"):
                of_roots = torch.zeros_like(top) if top.grad is None else top.grad
                if gradient is None:
                    gradient = of_roots
                else:
                    gradient[:roots] += of_roots
            gradient = step.backward(gradient)
        return float(loss.detach())

    @torch.no_grad()
    def logits(self, minibatch: MiniBatch, number: int) -> Tensor:
        outputs, roots = self._forward(minibatch, number), len(minibatch.micro_batches[number].roots)
        with self.ctx.phases("compute"):
            return self._logits(minibatch, number, [output[:roots] for output in outputs])

    def held_bytes(self, minibatch: MiniBatch) -> int:
        """With blocks and the lists of their edges, sums that are kept, the largest exchange of a layer, and rows that
        are computed for other ranks."""
        kept: KeptGraph = minibatch.exchange_plans[0]
        graph, size = kept.graph, self.layer.bias.element_size()
        lists = sum(VERTEX_BYTES * block.n_src + EDGE_BYTES * block.edges for block in graph.blocks)
        sums = 0 if graph.summed is None else graph.plans[0].block.n_dst * self.layer.in_dim
        layers = list(zip(self.ctx.model.layers, graph.plans, strict=True))
        moved, computed = max(kept.moved(*each) for each in layers), sum(_computed_by_kind(*each) for each in layers)
        return super().held_bytes(minibatch) + lists + size * (sums + moved + computed)

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """With the inputs of hidden layers, which are copies, and their gradients."""
        size = self.layer.bias.element_size()
        layers = self.ctx.model.layers
        rows = micro_batch.held_rows or [block.n_src for block in micro_batch.blocks]
        hidden = (2 * held * layer.in_dim for layer, held in zip(layers[:0:-1], rows, strict=False))
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
        return head(tops, block.dst_original, minibatch.dropout)


def _computed_by_kind(layer: Layer, plan: LayerPlan) -> int:
    """Numbers that `layer` holds, where it is not fed by raw rows, beyond what it would hold then."""
    if plan.by_kind is None:
        return 0
    rows, sent, block = len(plan.by_kind.vertices), int(plan.by_kind.sent_counts.sum()), plan.block
    width = 2 * kind_width(layer, plan.kind)
    copies = (layer.dropout > 0) * rows * layer.in_dim
    if plan.kind == PROJECTED:
        return copies + (rows + block.n_src) * width + 4 * block.n_dst * layer.own_width
    return copies + (sent + block.n_dst) * width + sent * layer.in_dim


def graph_of(minibatch: MiniBatch) -> LayerGraph:
    """What this rank computes for a full batch."""
    graph: LayerGraph = minibatch.exchange_plans[0].graph
    return graph


def kind_width(layer: Layer, kind: str) -> int:
    """Numbers in a row that is communicated for `layer`, by the kind."""
    return {PROJECTED: layer.source_width, PARTIAL: layer.partial_width}.get(kind, layer.in_dim)


def reads_learned(ctx: RankContext) -> bool:
    """Whether learned rows stand for features, in forecasts too."""
    return ctx.features.returned_row_bytes > 0


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
    if kind == PARTIAL and "edge_features" in layer.edge_data:
        return "it reads features of edges, which lie with their destinations"
    if kind == PARTIAL and not (layer.linear and layer.partial_form is SUM):
        return "its aggregate is no sum of rows"
    return ""
