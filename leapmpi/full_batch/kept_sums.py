"""Sums of features that no weight bears on: the first layer's aggregate, made once and kept for all iterations.

A rank then reads neither the features of its neighbours nor the edges of the first layer again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.layer_feed import LayerFeed, LocalFeed
from leapmpi.exchange.layer_graphs import RAW, LayerGraph
from leapmpi.full_batch.layer_by_layer import reads_learned
from leapmpi.nn.layer import plain_prefix, reads_own
from leapmpi.nn.rows import Rows
from leapmpi.nn.tensors import BlockTensors
from leapmpi.plan.homes import home_of


def sums_can_be_kept(ctx: RankContext) -> bool:
    """Return whether the first layer sums up features before any weight, dropout or normalisation, and features
    stay.
    """
    first = ctx.model.layers[0]
    plain = first.linear and first.traits.plain_sums and plain_prefix(first)
    return plain and not reads_learned(ctx) and not ctx.features.sparse


def with_sums(ctx: RankContext, graph: LayerGraph) -> LayerGraph:
    """Return `graph`, whose first layer is fed by raw rows, with sums: it reads the rows of destinations alone, or
    none.
    """
    assert graph.plans[0].kind == RAW, "sums are those of whole rows"
    first, destinations = ctx.model.layers[0], graph.plans[0].block.dst
    fed = destinations if reads_own(first) else destinations[:0]
    remote = np.sort(fed[home_of(fed, ctx.rank_offsets) != ctx.rank])
    return replace(graph, fed=fed, cached=remote, summed=graph.fed)


def sums_feed(ctx: RankContext, block: BlockTensors, rows: Rows) -> LayerFeed:
    """Return the first layer from sums of `rows`, the features of all sources, that are kept. Local.

    It reads the rows of destinations, or none where they are not read.
    """
    layer = ctx.model.layers[0]
    with torch.no_grad():
        sums = layer.aggregate(block, rows.to(layer.dtype), None)

    def output(own: Rows | None) -> Tensor:
        own = own.to(sums.dtype) if own is not None and len(own) else None
        return layer.sums.output(sums, own)

    return LocalFeed(ctx, layer, output)
