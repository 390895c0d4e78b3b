"""Attention of heads over relations, multiplied once for each group of edges rather than once for each source.

    score_e,h = <z_u, W_r,h x_v,h>        out_v,h = sum_r W_r,h sum_e share_e,h z_u

for the edge e of relation r from u to v. Both are linear in source rows, so that what they multiply can be moved to the
groups of `RelationGroups`, which are fewer. The gradients of one are made of the other and of sums at sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.gemm import place_product, sum_of_outer
from leapmpi.nn.kernels import group_tiles
from leapmpi.nn.kernels.csr import arrays
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.kernels.simd import COLUMNS
from leapmpi.nn.typed.relation_attention import ReadEdges
from leapmpi.nn.typed.whole_rows import products_of_rows, rows_at_sources, sums_of_rows
from leapmpi.system.worker_threads import threads


def relation_scores(read: ReadEdges, z: Tensor, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Compute <z_u, W_r,h x_v,h> for each edge and head: float[edges, heads], differentiable in the last three.

    z: float[sources, columns]; x: float[destinations, heads x in]; weights: float[relations of the layer, heads,
    columns, in]. Returns `z` for its other readers, too, as `own_rows` does.
    """
    return _Scores.apply(z.contiguous(), x.contiguous(), weights, read)


def relation_messages(read: ReadEdges, z: Tensor, share: Tensor, weights: Tensor) -> Tensor:
    """Compute the sums of W_r,h share_e,h z_u: float[destinations, heads x out], differentiable in the last three.

    z: float[sources, columns]; share: float[edges, heads]; weights: float[relations of the layer, heads, out, columns].
    """
    return _Messages.apply(z.contiguous(), share.contiguous(), weights, read)


def own_rows(z: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of `z` (float[sources, columns]) with numbers int64[k], and `z` for its other readers.

    Gradients of the rows are added to those of the other readers: no matrix of zeros is made for them.
    """
    return _Own.apply(z, rows)


class _Own(Function):
    @staticmethod
    def forward(ctx, z, rows) -> tuple[Tensor, Tensor]:
        ctx.rows, ctx.shape = rows, z.shape
        ctx.set_materialize_grads(False)
        return z.index_select(0, rows), z

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor | None, of_z: Tensor | None) -> tuple[Tensor | None, None]:
        if grad is None:
            return of_z, None
        # The other readers' gradients are a matrix of their own, made for this sum alone.
        found = grad.new_zeros(ctx.shape) if of_z is None else of_z
        return found.index_add_(0, ctx.rows, grad), None


class _Scores(Function):
    @staticmethod
    def forward(ctx, z, x, weights, read) -> tuple[Tensor | None, Tensor]:
        ctx.read = read
        ctx.save_for_backward(z, x, weights)
        ctx.set_materialize_grads(False)
        return _walk(read, z, x, None, weights, (PRODUCTS,)).products, z

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor | None, passed: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return passed, None, None, None
        z, x, weights = ctx.saved_tensors
        wanted = _chosen(ctx, AT_SOURCES, SUMS, OUTER)
        found = _walk(ctx.read, z, x, grad.contiguous(), weights, wanted, passed)
        return found.at_sources, found.sums, None if found.outer is None else found.outer.transpose(2, 3), None


class _Messages(Function):
    @staticmethod
    def forward(ctx, z, share, weights, read) -> Tensor | None:
        ctx.read = read
        ctx.save_for_backward(z, share, weights)
        return _walk(read, z, None, share, weights.transpose(2, 3), (SUMS,)).sums

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, share, weights = ctx.saved_tensors
        wanted = _chosen(ctx, AT_SOURCES, PRODUCTS, OUTER)
        found = _walk(ctx.read, z, grad.contiguous(), share, weights.transpose(2, 3), wanted)
        return found.at_sources, found.products, found.outer, None


PRODUCTS, AT_SOURCES, SUMS, OUTER = "products", "at_sources", "sums", "outer"


@dataclass(eq=False)
class _Found:
    """Results of `_walk`, None where they are not wanted."""

    products: Tensor | None = None
    at_sources: Tensor | None = None
    sums: Tensor | None = None
    outer: Tensor | None = None


def _chosen(ctx: Any, *results: str) -> list[str]:
    """Return those of `results`, one for each operand, whose operand needs a gradient."""
    return [each for each, needed in zip(results, ctx.needs_input_grad, strict=False) if needed]


def _walk(
    read: ReadEdges,
    z: Tensor,
    x: Tensor | None,
    factor: Tensor | None,
    weights: Tensor,
    wanted: Sequence[str],
    passed: Tensor | None = None,
) -> _Found:
    """Compute the `wanted` ones of four results; weights: float[relations of the layer, heads, columns, width].

    products: z_u W_r,h x_v,h, float[edges, heads]. at_sources: the sums of factor_e,h W_r,h x_v,h over the edges of
    sources, float[sources, columns], added to `passed` in place. With the sums s_g,h of factor_e,h z_u over the edges
    of groups: sums, those of s_g,h W_r,h by destination, float[destinations, heads x width]; outer, those of
    x_v,h (s_g,h)^T by relation, float[relations of the layer, heads, width, columns].
    """
    by = _by_tiles if _serves_tiles(z) else _by_rows
    found = by(read, z, x, factor, weights, wanted, None if passed is None else passed.contiguous())
    if found.outer is not None:
        of_places, found.outer = found.outer, z.new_zeros(len(weights), *found.outer.shape[1:])
        # One by one: numbers in a list would be copied to a device at each call.
        for place, each in zip(read.places, of_places, strict=True):
            found.outer[place] = each
    return found


def _by_tiles(
    read: ReadEdges,
    z: Tensor,
    x: Tensor | None,
    factor: Tensor | None,
    weights: Tensor,
    wanted: Sequence[str],
    passed: Tensor | None,
) -> _Found:
    """Do `_walk` by one kernel; `outer` has the relations with groups alone."""
    found, (heads, columns, width) = _Found(), weights.shape[1:]
    weight = back = outer = None
    if PRODUCTS in wanted or AT_SOURCES in wanted:
        weight = _slices(read, weights)
    if PRODUCTS in wanted:
        found.products = z.new_empty(len(read.groups.edges.indices), heads)
    if AT_SOURCES in wanted:
        found.at_sources = torch.zeros_like(z) if passed is None else passed
    if SUMS in wanted:
        back, found.sums = _slices(read, weights.transpose(2, 3)), z.new_zeros(read.groups.destinations, heads * width)
    if OUTER in wanted:
        outer = z.new_zeros(len(read.places), heads, group_tiles.outer_rows(width), columns)
        found.outer = outer[:, :, :width]
    rows = _array(z), _array(x), _array(factor), weight
    group_tiles.walk(
        _lists(read), *rows, _array(found.products), _array(found.at_sources), back, _array(found.sums), _array(outer)
    )
    return found


def _array(tensor: Tensor | None) -> Any:
    """Return the array of `tensor`, None for None."""
    return None if tensor is None else next(arrays(tensor))


def _by_rows(
    read: ReadEdges,
    z: Tensor,
    x: Tensor | None,
    factor: Tensor | None,
    weights: Tensor,
    wanted: Sequence[str],
    passed: Tensor | None,
) -> _Found:
    """Do `_walk` by a matrix of the rows of groups for each result, with the same bits."""
    found, edges, (heads, columns, width) = _Found(), read.groups.edges, weights.shape[1:]
    if PRODUCTS in wanted or AT_SOURCES in wanted:
        assert x is not None, "the rows of destinations are multiplied"
        of_groups = _of_groups(read, x, weights)
    if PRODUCTS in wanted:
        found.products = products_of_rows(edges, z, of_groups)
    if AT_SOURCES in wanted:
        assert factor is not None, "edges add their parts"
        found.at_sources = rows_at_sources(edges, factor, of_groups, columns, passed)
    if SUMS in wanted or OUTER in wanted:
        assert factor is not None, "edges add their parts"
        rows = sums_of_rows(edges, z, factor)
    if SUMS in wanted:
        found.sums = z.new_zeros(read.groups.destinations, heads * width)
        _add_at_destinations(read, found.sums, rows, weights.transpose(2, 3))
    if OUTER in wanted:
        assert x is not None, "the rows of destinations are multiplied"
        found.outer = _outer_sums(read, rows, x, heads)
    return found


def _serves_tiles(z: Tensor) -> bool:
    """Return whether a kernel works tile by tile on rows like `z`, with the bits of `_by_rows`.

    It adds to the same rows, so one thread must run it.
    """
    return on_host(z.device) and z.dtype == torch.float32 and z.shape[1] % COLUMNS == 0 and threads() == 1


def _lists(read: ReadEdges) -> group_tiles.GroupLists:
    """Return the lists of edges that the kernels read."""
    groups = read.groups
    lists = arrays(groups.edges.indptr, groups.edges.indices, groups.destination)
    return group_tiles.GroupLists(np.array(groups.bounds), *lists)


def _slices(read: ReadEdges, weights: Tensor) -> np.ndarray:
    """Cut the matrices of the relations that have groups into slices of 16 rows, padded by zeros, for the kernels."""
    chosen = weights.detach()[list(read.places)]
    chosen = F.pad(chosen, (0, 0, 0, -chosen.shape[2] % COLUMNS))
    return chosen.unflatten(2, (-1, COLUMNS)).transpose(3, 4).contiguous().numpy()


def _of_groups(read: ReadEdges, x: Tensor, weights: Tensor) -> Tensor:
    """Multiply the row of each group's destination by the matrices of its relation: float[groups, heads x out]."""
    heads, out_dim, in_dim = weights.shape[1:]
    out = x.new_empty(len(read.groups.destination) * heads, out_dim)
    for place, head, of_groups, of_destinations in _parts(read, heads):
        place_product(out, of_groups, x.view(-1, in_dim), weights[place, head], of_destinations)
    return out.view(-1, heads * out_dim)


def _add_at_destinations(read: ReadEdges, sums: Tensor, x: Tensor, weights: Tensor) -> None:
    """Multiply rows of groups by the matrices of their relation, and add them to `sums`, relation by relation."""
    heads, out_dim, in_dim = weights.shape[1:]
    for place, head, of_groups, of_destinations in _parts(read, heads):
        rows = sums.view(-1, out_dim)
        place_product(rows, of_destinations, x.view(-1, in_dim), weights[place, head], of_groups, adds=True)


def _outer_sums(read: ReadEdges, of_groups: Tensor, of_destinations: Tensor, heads: int) -> Tensor:
    """Sum products of elements of both rows of each group: float[relations with groups, heads, width, columns]."""
    columns, width = of_groups.shape[1] // heads, of_destinations.shape[1] // heads
    found = of_groups.new_zeros(len(read.places) * heads, width, columns)
    for number, (_, _, groups, destinations) in enumerate(_parts(read, heads)):
        narrow = of_destinations.view(-1, width).index_select(0, destinations)
        found[number] = sum_of_outer(narrow, of_groups.view(-1, columns), groups)
    return found.unflatten(0, (-1, heads))


def _parts(read: ReadEdges, heads: int) -> Iterator[tuple[int, int, Tensor, Tensor]]:
    """Yield for each relation and head its place, the head, and rows int64[n] of groups and of their destinations.

    Rows are those of matrices with a row for each head.
    """
    groups = read.groups
    every = torch.arange(len(groups.destination), device=groups.destination.device) * heads
    destinations = groups.destination * heads
    for place, (first, end) in zip(read.places, pairwise(groups.bounds), strict=True):
        for head in range(heads):
            yield place, head, every[first:end] + head, destinations[first:end] + head
