"""Forward and backward of a full batch, one layer after the other; hidden rows and their gradients cross ranks.

Rows of vertices that this rank computed are read from its own output of the layer below, others arrive from their
homes. Gradients of the latter go back and are added there, before the layer below learns: the gradient is that of one
process, wherever a vertex was computed, since its dropout masks depend on the vertex and not on the rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.feed_choice import feed_of, runs_by_owner, sends_again
from leapmpi.exchange.layer_feed import LayerFeed
from leapmpi.exchange.layer_graphs import PARTIAL, PROJECTED, RAW, LayerGraph, LayerPlan
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.exchange.modes.raw import Raw
from leapmpi.exchange.read_columns import expected_share
from leapmpi.exchange.stage import Transfer
from leapmpi.nn.attention_links import carried_bytes
from leapmpi.nn.layer import Layer, reads_destinations
from leapmpi.nn.rows import Rows
from leapmpi.nn.share_forms import SUM
from leapmpi.nn.tensors import BlockTensors
from leapmpi.plan.traffic_model import Traffic

EDGE_BYTES = 28
"""Bytes of an edge of a block that is kept: its list by source, one with edges to themselves, weights."""

VERTEX_BYTES = 24
"""Bytes of a source of such a block."""


def feeds_of(ctx: RankContext, graph: LayerGraph, blocks: Sequence[BlockTensors]) -> list[LayerFeed]:
    """Return the feeds of all layers, from the first on. Local.

    `blocks` are the tensors of those of `graph`, from the last layer to the first.
    """
    parts = zip(ctx.model.layers, reversed(blocks), graph.plans, strict=True)
    return [feed_of(ctx, *part, graph.by_owner) for part in parts]


def held_rows(graph: LayerGraph, layers: Sequence[Layer]) -> list[int]:
    """Return how many sources of each block, from the last layer to the first, are held at once. Local."""
    parts = list(zip(layers, graph.plans, strict=True))
    return [_held_rows(graph, *each) for each in reversed(parts)]


def _held_rows(graph: LayerGraph, layer: Layer, plan: LayerPlan) -> int:
    if plan.rows is None or not (graph.by_owner and runs_by_owner(layer, plan)):
        return plan.block.n_src
    return len(plan.rows.local_rows) + int(plan.rows.received_counts.max())


def _moved(graph: LayerGraph, layer: Layer, plan: LayerPlan) -> int:
    """Return numbers that are sent and received for `layer` on this rank, one way and at once. Local."""
    total = 0
    if plan.rows:
        counts = plan.rows.received_counts, plan.rows.sent_counts
        at_once = graph.by_owner and runs_by_owner(layer, plan)
        total += layer.in_dim * sum(int(each.max() if at_once else each.sum()) for each in counts)
    if plan.by_kind:
        rows = int(plan.by_kind.received_counts.sum() + plan.by_kind.sent_counts.sum())
        total += kind_width(layer, plan.kind) * rows
    return total


class LayerByLayer(Raw):
    """Raw feature rows for the first layer; for layers above what the ranks compute.

    A mini-batch says in its `graph` what is computed, and holds the feeds of all layers.
    """

    overlaps = True
    description = "rows of remote vertices of the first and of hidden layers, and gradients"

    def read(self, minibatch: MiniBatch) -> np.ndarray:
        """Return the vertices (int64) whose features the first layer reads."""
        return graph_of(minibatch).fed

    def count(self, minibatch: MiniBatch, number: int) -> None:
        """Count hidden rows, projected rows and sums of every layer, and their gradients."""
        graph = graph_of(minibatch)
        for layer, plan in zip(self.ctx.model.layers, graph.plans, strict=True):
            if rows := plan.rows:
                again = graph.by_owner and runs_by_owner(layer, plan) and sends_again(layer)
                Transfer(self.ctx, rows.sent_counts, rows.received_counts, layer.in_dim).count(1 + again)
            if kind := plan.by_kind:
                Transfer(self.ctx, kind.sent_counts, kind.received_counts, kind_width(layer, plan.kind)).count()

    def collectives(self, time_steps: int) -> int:
        """Return the rows of each layer, and gradients of all but the first."""
        return 2 * len(self.ctx.model.layers) - 1

    def work(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> tuple[int, int, int]:
        """Count no edges if sums of features are kept."""
        sources, destinations, edges = super().work(minibatches, traffic)
        return sources, destinations, 0 if graph_of(minibatches[self.ctx.rank]).summed is not None else edges

    def feeds(self, minibatch: MiniBatch, number: int) -> tuple[Sequence[LayerFeed], Rows | None]:
        """Return the feeds of all layers."""
        return ExchangeMode.feeds(self, minibatch, number)

    def held_bytes(self, minibatch: MiniBatch) -> int:
        """Return the bytes held, with blocks and the lists of their edges, sums that are kept, and other exchanges.

        Of the exchanges of layers the largest counts, and all rows computed for other ranks.
        """
        graph, size = graph_of(minibatch), self.layer.dtype.itemsize
        lists = sum(VERTEX_BYTES * block.n_src + EDGE_BYTES * block.edges for block in graph.blocks)
        sums = 0 if graph.summed is None else graph.plans[0].block.n_dst * self.layer.in_dim
        layers = list(zip(self.ctx.model.layers, graph.plans, strict=True))
        moved, computed = max(_moved(graph, *each) for each in layers), sum(_computed_by_kind(*each) for each in layers)
        return super().held_bytes(minibatch) + lists + size * (sums + moved + computed)

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """Return the bytes of a step, with the inputs of hidden layers, which are copies, and their gradients.

        Attention that layers hand on counts too.
        """
        size = self.layer.dtype.itemsize
        layers = self.ctx.model.layers
        rows = micro_batch.held_rows or [block.n_src for block in micro_batch.blocks]
        hidden = (2 * held * layer.in_dim for layer, held in zip(layers[:0:-1], rows, strict=False))
        edges = [block.edges + block.n_dst for block in reversed(micro_batch.blocks)]
        carried = carried_bytes(layers, edges, size)
        return super().step_bytes(micro_batch, alone) + size * sum(hidden) + carried


def _computed_by_kind(layer: Layer, plan: LayerPlan) -> int:
    """Return numbers that `layer` holds, where it is not fed by raw rows, beyond what it would hold then."""
    if plan.by_kind is None:
        return 0
    rows, sent, block = len(plan.by_kind.vertices), int(plan.by_kind.sent_counts.sum()), plan.block
    width = 2 * kind_width(layer, plan.kind)
    copies = (layer.dropout > 0) * rows * layer.in_dim
    if plan.kind == PROJECTED:
        return copies + (rows + block.n_src) * width + 4 * block.n_dst * layer.rows.own_width
    return copies + (sent + block.n_dst) * width + sent * layer.in_dim


def graph_of(minibatch: MiniBatch) -> LayerGraph:
    """Return the graph that this rank computes."""
    assert minibatch.graph is not None, "mini-batches that are computed layer by layer have one"
    return minibatch.graph


def kind_width(layer: Layer, kind: str) -> int:
    """Return the numbers in a row that is communicated for `layer`, by the kind."""
    if kind == PROJECTED:
        return layer.rows.source_width
    if kind == PARTIAL:
        return layer.out_dim if layer.shares is None else layer.shares.width
    return layer.in_dim


def width_across_ranks(ctx: RankContext, layer: Layer, kind: str) -> float:
    """Return how many numbers of a row of `kind` are expected to travel for `layer`, the mean of both directions."""
    packed = kind in (RAW, PARTIAL)
    return kind_width(layer, kind) * (expected_share(ctx, layer, kind == PARTIAL) if packed else 1.0)


def reads_learned(ctx: RankContext) -> bool:
    """Return whether learned rows stand for features, in forecasts too."""
    return ctx.features.returned_row_bytes > 0


def may_mix(ctx: RankContext, layer: Layer) -> bool:
    """Return whether projected rows of `layer` may be sent among its partial sums, in forecasts too. Local.

    With a sharded topology, the degrees of remote sources are not known.
    """
    return ctx.answers is None and layer.shares is not None and layer.shares.raw_share is not None


def refusal(layer: Layer, kind: str, learned: bool = False) -> str:
    """Return why `layer` cannot be fed by `kind`, empty where it can; `learned` says that it reads learned rows."""
    if kind == RAW:
        return ""
    if learned and layer.inputs is None:
        return "learned rows are sent as they are"
    if not layer.projects:
        return "its messages are made of raw rows"
    if reads_destinations(layer):
        return "it adds the raw rows of its destinations"
    if kind == PARTIAL and "edge_features" in layer.edge_data:
        return "it reads features of edges, which the owners of destinations hold"
    if kind == PARTIAL and not (layer.linear and layer.shares is not None and layer.shares.layout is SUM):
        return "its aggregate is not a sum of rows"
    return ""
