"""Attention of heads over relations, multiplied once for each group of edges rather than once for each source.

    score_e,h = <z_u, W_r,h x_v,h>        out_v,h = sum_r W_r,h sum_e share_e,h z_u

for the edge e of relation r from u to v. Both are linear in source rows, so that what they multiply can be moved to the
groups of `RelationGroups`, which are fewer. The gradients of one are made of the other and of sums at sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

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
    def forward(ctx, z, x, weights, read) -> tuple[Tensor, Tensor]:
        ctx.read = read
        ctx.save_for_backward(z, x, weights)
        ctx.set_materialize_grads(False)
        return _products(read, z, x, weights), z

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor | None, passed: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return passed, None, None, None
        (z, x, weights), grad, read = ctx.saved_tensors, grad.contiguous(), ctx.read
        of_z, of_x, of_weights = ctx.needs_input_grad[:3]
        grad_z = _at_sources(read, grad, x, weights, passed) if of_z else None
        found = _sums(read, z, grad, weights.transpose(2, 3) if of_x else None, x if of_weights else None, weights)
        grad_weights = None if found[1] is None else found[1].transpose(2, 3)
        return grad_z, found[0] if of_x else None, grad_weights, None


class _Messages(Function):
    @staticmethod
    def forward(ctx, z, share, weights, read) -> Tensor:
        ctx.read = read
        ctx.save_for_backward(z, share, weights)
        return _sums(read, z, share, weights, None, weights)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        (z, share, weights), grad, read = ctx.saved_tensors, grad.contiguous(), ctx.read
        of_z, of_share, of_weights = ctx.needs_input_grad[:3]
        back = weights.transpose(2, 3)
        grad_z = _at_sources(read, share, grad, back) if of_z else None
        grad_share = _products(read, z, grad, back) if of_share else None
        return grad_z, grad_share, _sums(read, z, share, None, grad, weights)[1] if of_weights else None, None


def _products(read: ReadEdges, z: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    """Compute `relation_scores`."""
    if not _by_tiles(z):
        return products_of_rows(read.groups.edges, z, _of_groups(read, x, weights))
    out = z.new_empty(len(read.groups.edges.indices), weights.shape[1])
    given = *arrays(z, x), _slices(read, weights), *arrays(out)
    group_tiles.products_by_tile(_lists(read), *given)
    return out


def _at_sources(read: ReadEdges, factor: Tensor, x: Tensor, weights: Tensor, found: Tensor | None = None) -> Tensor:
    """Add factor_e,h W_r,h x_v,h to the row of the source of each edge: to `found`, or to zeros [sources, columns]."""
    edges, columns = read.groups.edges, weights.shape[2]
    if not _by_tiles(x.new_empty(0, columns)):
        return rows_at_sources(edges, factor, _of_groups(read, x, weights), columns, found)
    found = x.new_zeros(edges.sources, columns) if found is None else found.contiguous()
    given = *arrays(found, x), _slices(read, weights), *arrays(factor)
    group_tiles.add_tiles(_lists(read), *given)
    return found


def _sums(
    read: ReadEdges, z: Tensor, factor: Tensor, weights: Tensor | None, x: Tensor | None, like: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Compute two things of s_g,h, the sums of factor_e,h z_u over the edges of each group.

    With `weights`, the sums of W_r,h s_g,h by destination, float[destinations, heads x out]; with `x`, float
    [destinations, heads x width], those of x_v,h (s_g,h)^T by relation, float[relations, heads, width, columns]. `like`
    has as many relations and heads.
    """
    (relations, heads), (_, columns) = like.shape[:2], z.shape
    out = 0 if weights is None else weights.shape[2]
    width = 0 if x is None else x.shape[1] // heads
    sums = z.new_zeros(read.groups.destinations, heads * out)
    if _by_tiles(z):
        none = np.empty((len(read.places), heads, 0, columns, COLUMNS), np.float32)
        outer = z.new_zeros(len(read.places), heads, group_tiles.outer_rows(width), columns)
        slices = none if weights is None else _slices(read, weights)
        rows = z.new_empty(read.groups.destinations, 0) if x is None else x
        given = *arrays(z, factor), slices, *arrays(sums, rows, outer)
        group_tiles.sums_by_tile(_lists(read), *given)
        of_places = outer[:, :, :width]
    else:
        rows = sums_of_rows(read.groups.edges, z, factor)
        if weights is not None:
            _add_at_destinations(read, sums, rows, weights)
        of_places = z.new_empty(0) if x is None else _outer_sums(read, rows, x, heads)

    if x is None:
        return sums, None
    found = z.new_zeros(relations, heads, width, columns)
    # One by one: numbers in a list would be copied to a device at each call.
    for place, each in zip(read.places, of_places, strict=True):
        found[place] = each
    return sums, found


def _by_tiles(z: Tensor) -> bool:
    """Return whether kernels work tile by tile, with the bits of the functions below, on rows like `z`.

    They add to the same rows, so one thread must run them.
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
