"""Which step computes a layer: by what is communicated for it, by what it can do while rows travel, and by memory."""

from __future__ import annotations

import numpy as np

from leapmpi.engine.context import RankContext
from leapmpi.full_batch.layer_graphs import PARTIAL, PROJECTED, RAW, LayerPlan
from leapmpi.full_batch.steps.attention_by_owner import AttentionByOwnerStep
from leapmpi.full_batch.steps.kind_steps import PartialStep, ProjectedStep
from leapmpi.full_batch.steps.layer_step import LayerStep, RawStep
from leapmpi.full_batch.steps.own_first import EdgeSumsStep, OwnFirstStep, ProjectionsStep
from leapmpi.full_batch.steps.owner_by_owner import OwnerByOwnerStep
from leapmpi.nn.layer import Layer
from leapmpi.nn.models.gat import GATLayer
from leapmpi.nn.tensors import BlockTensors

_SPLIT_SECONDS = 1e-8
"""Seconds to sort an edge by where its source comes from."""


def step_of(ctx: RankContext, layer: Layer, block: BlockTensors, plan: LayerPlan, by_owner: bool = False) -> LayerStep:
    """The step of `layer` as `plan` says; `by_owner`, the same on all ranks, where rows of one other rank are held.

    Else ranks may differ in it: all steps of a kind exchange alike.
    """
    kind: type[LayerStep] = {PROJECTED: ProjectedStep, PARTIAL: PartialStep}.get(plan.kind, RawStep)
    if by_owner and goes_by_owner(layer, plan):
        kind = AttentionByOwnerStep if _attends(layer) else OwnerByOwnerStep
    elif plan.kind == RAW:
        kind = _own_first(ctx, layer, plan) or kind
    return kind(ctx, layer, block, plan)


def goes_by_owner(layer: Layer, plan: LayerPlan) -> bool:
    """Whether `layer` can be computed with the rows of one other rank at a time, as far as all ranks agree on it."""
    return plan.rows is not None and plan.kind == RAW and (_sums_over_edges(layer) or _attends(layer))


def sends_again(layer: Layer) -> bool:
    """Whether a layer that goes by owner needs rows once more for the gradients."""
    return layer.norm is not None or _attends(layer)


def can_go_by_owner(layer: Layer, plan: LayerPlan) -> bool:
    """Whether this rank has its destinations where `goes_by_owner` needs them."""
    return not goes_by_owner(layer, plan) or _own_come_first(layer, plan)


def _own_first(ctx: RankContext, layer: Layer, plan: LayerPlan) -> type[OwnFirstStep] | None:
    """How own rows of `layer` can be worked on first; None where they cannot, or where it does not pay."""
    if plan.rows is None or layer.own_width or not layer.splits or not _own_come_first(layer, plan):
        return None
    travels = len(plan.rows.received_positions) * layer.in_dim * layer.bias.element_size() * ctx.machine.byte
    if not travels or travels < _SPLIT_SECONDS * plan.block.edges:
        return None
    if _sums_over_edges(layer):
        return EdgeSumsStep
    return ProjectionsStep if layer.projects and not layer.linear else None


def _sums_over_edges(layer: Layer) -> bool:
    """Whether the aggregate of `layer` is a sum over edges by weights that the block alone decides."""
    return layer.linear and layer.splits and type(layer).edge_sums is not Layer.edge_sums


def _attends(layer: Layer) -> bool:
    """Whether the aggregate of `layer` is an attention of which edges can give shares."""
    return isinstance(layer, GATLayer) and layer.edge is None


def _own_come_first(layer: Layer, plan: LayerPlan) -> bool:
    """Whether destinations are the first own rows, where the layer reads more of them than their edges say."""
    if not (layer.reads_own or _attends(layer)):
        return True
    assert plan.rows is not None, "hidden rows are exchanged"
    return np.array_equal(plan.rows.local_positions[: plan.block.n_dst], np.arange(plan.block.n_dst))
