"""The choice of the feed of a layer: by the kind of communication, by possible overlap, and by memory."""

from __future__ import annotations

import numpy as np

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.attention_by_owner import AttentionByOwnerFeed
from leapmpi.exchange.feeds.own_first import EdgeSumsFeed, OwnFirstFeed, ProjectionsFeed
from leapmpi.exchange.feeds.owner_by_owner import OwnerByOwnerFeed
from leapmpi.exchange.feeds.partial import PartialFeed
from leapmpi.exchange.feeds.projected import ProjectedFeed
from leapmpi.exchange.layer_feed import BlockFeed, LayerFeed
from leapmpi.exchange.layer_graphs import PARTIAL, PROJECTED, RAW, LayerPlan
from leapmpi.nn.layer import Layer, reads_own
from leapmpi.nn.models.gat import GATLayer
from leapmpi.nn.sum_layer import SumLayer
from leapmpi.nn.tensors import BlockTensors

_SPLIT_SECONDS = 1e-8
"""Seconds to sort an edge by the origin of its source."""


def feed_of(ctx: RankContext, layer: Layer, block: BlockTensors, plan: LayerPlan, by_owner: bool = False) -> LayerFeed:
    """Make the feed of `layer` for `plan`; with `by_owner`, one that holds the rows of one other rank at a time.

    All ranks pass the same `by_owner`. Beyond it ranks may differ: all feeds of a kind exchange alike.
    """
    if plan.kind == PROJECTED:
        return ProjectedFeed.of_plan(ctx, layer, block, plan)
    if plan.kind == PARTIAL:
        return PartialFeed.of_plan(ctx, layer, plan)
    if by_owner and runs_by_owner(layer, plan):
        kind = AttentionByOwnerFeed if _attends(layer) else OwnerByOwnerFeed
        return kind(ctx, layer, block, plan)
    # Whatever is left reads raw rows; own ones are summed first where that hides the wait.
    own_first = _own_first(ctx, layer, plan)
    return own_first(ctx, layer, block, plan) if own_first else BlockFeed(ctx, layer, block, plan.rows)


def runs_by_owner(layer: Layer, plan: LayerPlan) -> bool:
    """Return whether `layer` and the kind of `plan` allow rows of one other rank at a time; the same on all ranks."""
    return plan.rows is not None and plan.kind == RAW and (_sums_over_edges(layer) or _attends(layer))


def sends_again(layer: Layer) -> bool:
    """Return whether a layer computed owner by owner needs rows once more for the gradients."""
    return layer.norm is not None or _attends(layer)


def can_run_by_owner(layer: Layer, plan: LayerPlan) -> bool:
    """Return whether destinations of this rank have the positions that `runs_by_owner` requires."""
    return not runs_by_owner(layer, plan) or _own_rows_first(layer, plan)


def _own_first(ctx: RankContext, layer: Layer, plan: LayerPlan) -> type[OwnFirstFeed] | None:
    """Choose the feed that works on own rows of `layer` first; None where none can, or where it does not pay."""
    if plan.rows is None or layer.rows.pair or not layer.splits or not _own_rows_first(layer, plan):
        return None
    travels = len(plan.rows.received_positions) * layer.in_dim * layer.dtype.itemsize * ctx.machine.byte
    # Two passes over the edges cost more than they hide where few rows travel.
    if not travels or travels < _SPLIT_SECONDS * plan.block.edges:
        return None
    if _sums_over_edges(layer):
        return EdgeSumsFeed
    return ProjectionsFeed if layer.projects and not layer.linear else None


def _sums_over_edges(layer: Layer) -> bool:
    """Return whether the aggregate of `layer` is a sum over edges with weights that depend on the block alone."""
    return layer.linear and isinstance(layer, SumLayer)


def _attends(layer: Layer) -> bool:
    """Return whether `layer` aggregates by an attention that can be computed in shares."""
    return isinstance(layer, GATLayer) and layer.edge is None


def _own_rows_first(layer: Layer, plan: LayerPlan) -> bool:
    """Return whether destinations are the first own rows, where the layer reads them beyond their edges."""
    if not (reads_own(layer) or _attends(layer)):
        return True
    assert plan.rows is not None, "hidden rows are exchanged"
    assert plan.rows.local_positions is not None, "some rows may be remote"
    return np.array_equal(plan.rows.local_positions[: plan.block.n_dst], np.arange(plan.block.n_dst))
