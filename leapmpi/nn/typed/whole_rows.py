"""Sums and products over edges where each head reads whole source rows, rather than columns of its own.

Rows of groups hold the columns of all heads side by side: float[groups, heads x columns]. The three functions are each
other's gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.aggregate import at_sources
from leapmpi.nn.kernels import head_rows
from leapmpi.nn.kernels.csr import arrays
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.tensors import Edges, operations
from leapmpi.system.worker_threads import share_rows, threads


def sums_of_rows(edges: Edges, z: Tensor, weight: Tensor) -> Tensor:
    """Sum rows `z` of sources over the edges of each group, in their order: float[groups, heads x columns].

    z: float[sources, columns]; weight: float[edges, heads]. Not differentiable.
    """
    if _in_vectors(z):
        out = z.new_empty(edges.destinations, weight.shape[1] * z.shape[1])
        head_rows.head_sums(*arrays(edges.indptr, edges.indices, weight, z, out))
        return out
    one_head = operations(z.device).weighted_sum
    return torch.cat([one_head(edges.indptr, edges.indices, each, z) for each in weight.split(1, 1)], 1)


def products_of_rows(edges: Edges, z: Tensor, target: Tensor) -> Tensor:
    """Multiply the row of each edge's source by its group's row of each head: float[edges, heads].

    z: float[sources, columns]; target: float[groups, heads x columns]. Not differentiable.
    """
    if _in_vectors(z):
        out = z.new_empty(len(edges.indices), target.shape[1] // z.shape[1])
        head_rows.head_products(*arrays(edges.indptr, edges.indices, target, z, out))
        return out
    one_head = operations(z.device).edge_products
    return torch.cat([one_head(edges.indptr, edges.indices, each, z, 1) for each in target.split(z.shape[1], 1)], 1)


def rows_at_sources(edges: Edges, weight: Tensor, rows: Tensor, columns: int, found: Tensor | None = None) -> Tensor:
    """Add the rows of groups to the sources of their edges, times the weights of each head: float[sources, columns].

    weight: float[edges, heads]; rows: float[groups, heads x columns]. They are added to `found` where it is given, in
    place. Not differentiable.
    """
    out = rows.new_zeros(edges.sources, columns) if found is None else found.contiguous()
    if _in_vectors(out):
        # As many ranges of sources as threads: each walks through all edges.
        least = max(1, -(-len(out) // threads()))
        given = arrays(edges.indptr, edges.indices, weight, rows, out)
        share_rows(head_rows.add_to_sources, len(out), *given, least=least)
        return out
    for each, part in zip(weight.split(1, 1), rows.split(columns, 1), strict=True):
        out += at_sources(edges, each.contiguous(), part.contiguous())
    return out


def _in_vectors(z: Tensor) -> bool:
    """Return whether kernels for heads serve whole rows of `z`."""
    return on_host(z.device) and head_rows.serves(z, 1)


class _ProductsOfRows(Function):
    @staticmethod
    def forward(ctx, z: Tensor, target: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
        ctx.edges = edges
        ctx.save_for_backward(z, target)
        ctx.set_materialize_grads(False)
        return products_of_rows(edges, z, target), z

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor | None, passed: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        if grad is None:
            return passed, None, None
        (z, target), grad = ctx.saved_tensors, grad.contiguous()
        of_z, of_target = ctx.needs_input_grad[:2]
        grad_z = rows_at_sources(ctx.edges, grad, target, z.shape[1], passed) if of_z else None
        return grad_z, sums_of_rows(ctx.edges, z, grad) if of_target else None, None


def products_with_rows(edges: Edges, z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `products_of_rows`, differentiable in `z` and `target`; return `z` for its other readers, too.

    Their gradient, a matrix of its own, gets that of the products added in place.
    """
    return _ProductsOfRows.apply(z, target.contiguous(), edges)
