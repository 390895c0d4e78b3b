"""One step of a layer of relations: means by relation and own rows, multiplied by their matrices and added up.

    out_v = sum_r W_r sum_e share_e h_u(e) + W_type(v) h_v + b_type(v)

Products of a tile of groups are added to their destinations, and gradients to their sources, while they are in cache.
Of everything with a row for each group, the means alone are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.aggregate import at_sources
from leapmpi.nn.gemm import SumsAtSources, adds_at_sources, place_product, sum_of_outer, times_transposed
from leapmpi.nn.tensors import RelationGroups, operations

NO_WEIGHT = -1
"""In the place of the number of a matrix: the group gives nothing."""


@dataclass(frozen=True, eq=False)
class OwnRows:
    """Rows of destinations, sorted by kind: `bounds` int[kinds + 1] of the lists begin those of each.

    rows, destinations: int64[k], the number of each row and of its destination, both distinct.
    """

    rows: Tensor
    destinations: Tensor
    bounds: Sequence[int]

    @classmethod
    def of(cls, kinds: Tensor, count: int, rows: Tensor, destinations: Tensor) -> OwnRows:
        """Sort `rows` of `destinations`, whose `kinds` (int64[k]) are below `count`; leave out those of none, -1."""
        order, bounds = by_kind(kinds, count)
        order = order[bounds[1] :]
        return cls(rows[order], destinations[order], [each - bounds[1] for each in bounds[1:]])


def by_kind(kinds: Tensor, count: int) -> tuple[Tensor, list[int]]:
    """Sort rows by kind, stably: return int64[n], their numbers in this order, and where each of the kinds begins.

    kinds: int64[n], -1 to count - 1. The list has count + 2 entries; the first kind is -1.
    """
    sizes = torch.bincount(kinds + 1, minlength=count + 1)
    return torch.argsort(kinds, stable=True), [0, *sizes.cumsum(0).tolist()]


def relation_sums(
    rows: Tensor,
    groups: RelationGroups,
    share: Tensor,
    weights: Tensor,
    numbers: Sequence[int],
    own: tuple[OwnRows, Tensor, Tensor] | None = None,
) -> Tensor:
    """Return the sums over relations of weights[number] times the mean of `rows`: float[n_dst, out], differentiable.

    rows: float[n_src, in]; share: float[edges], in the order of `groups`; weights: float[R, out, in]; numbers: that of
    the matrix of each of `groups.relations`, or NO_WEIGHT. own: rows of destinations with a matrix for each kind,
    float[kinds, out, in], and a bias, float[kinds, out].
    """
    of_own = (None, None, None) if own is None else own
    return _RelationSums.apply(rows, weights, *of_own[1:], groups, share, tuple(numbers), of_own[0])


class _RelationSums(Function):
    @staticmethod
    def forward(ctx, rows, weights, own_weights, bias, groups, share, numbers, own) -> Tensor:
        edges = groups.edges
        means = operations(rows.device).weighted_sum(edges.indptr, edges.indices, share.unsqueeze(1), rows)
        out = rows.new_zeros(groups.destinations, weights.shape[1])
        # Terms are added in one order: bias, relations, own rows.
        if own is not None:
            for kind, part in _parts(own.bounds):
                out[own.destinations[part]] = bias[kind]
        for number, part in _of_relations(numbers, groups):
            place_product(out, groups.destination[part], means[part], weights[number], adds=True)
        if own is not None:
            for kind, part in _parts(own.bounds):
                place_product(out, own.destinations[part], rows, own_weights[kind], own.rows[part], adds=True)
        ctx.groups, ctx.share, ctx.numbers, ctx.own = groups, share, numbers, own
        # Gradients of relations read means, so rows are kept for own terms alone.
        ctx.save_for_backward(rows if own is not None else None, means, weights, own_weights)
        ctx.sources = rows.shape
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, means, weights, own_weights = ctx.saved_tensors
        of_rows, of_weights, of_own, of_bias = ctx.needs_input_grad[:4]
        grad, groups, own = grad.contiguous(), ctx.groups, ctx.own
        grad_weights = torch.zeros_like(weights) if of_weights else None
        if grad_weights is not None:
            # Rows of the gradient are read in place, so that the sum is that of the transposed matrix.
            for number, part in _of_relations(ctx.numbers, groups):
                grad_weights[number] += sum_of_outer(means[part], grad, groups.destination[part]).t()
        # Sources get the gradients of their relations first; own rows of destinations are added to them below.
        grad_rows = _at_sources(ctx, grad, weights) if of_rows else None
        if own is None:
            return grad_rows, grad_weights, *(None,) * 6

        grad_own = torch.zeros_like(own_weights) if of_own else None
        grad_bias = grad.new_zeros(own_weights.shape[:2]) if of_bias else None
        for kind, part in _parts(own.bounds):
            numbers, destinations = own.rows[part], own.destinations[part]
            given = grad.index_select(0, destinations)
            if grad_own is not None:
                grad_own[kind] = sum_of_outer(given, rows, numbers)
            if grad_bias is not None:
                grad_bias[kind] = given.sum(0)
            if grad_rows is not None:
                place_product(grad_rows, numbers, given, own_weights[kind].t(), adds=True)
        return grad_rows, grad_weights, grad_own, grad_bias, *(None,) * 4


def _at_sources(ctx: Any, grad: Tensor, weights: Tensor) -> Tensor:
    """Return the gradient of the rows by the means: float[n_src, in]."""
    groups, share = ctx.groups, ctx.share
    if adds_at_sources(grad):
        sums = SumsAtSources(grad, ctx.sources)
        for number, part in _of_relations(ctx.numbers, groups):
            sums.add(groups.edges, part, share, grad, weights[number].t(), groups.destination[part])
        return sums.finish()
    of_means = grad.new_zeros(groups.edges.destinations, weights.shape[2])
    for number, part in _of_relations(ctx.numbers, groups):
        of_means[part] = times_transposed(grad, weights[number].t(), groups.destination[part])
    return at_sources(groups.edges, share.unsqueeze(1), of_means)


def _of_relations(numbers: Sequence[int], groups: RelationGroups) -> Iterator[tuple[int, slice]]:
    """Yield the number of the matrix, and the groups, of each relation that has both."""
    for number, (first, end) in zip(numbers, pairwise(groups.bounds), strict=True):
        if number != NO_WEIGHT and first < end:
            yield number, slice(first, end)


def _parts(bounds: Sequence[int]) -> Iterator[tuple[int, slice]]:
    """Yield each kind that has rows, with their slice."""
    for kind, (first, end) in enumerate(pairwise(bounds)):
        if first < end:
            yield kind, slice(first, end)
