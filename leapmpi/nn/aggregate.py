"""Differentiable aggregation over the edges of a block: weighted sums, means, attention.

Gradients with respect to sources are sums over the edges of each source, each row by one thread in edge order,
so they are as reproducible as the forward sums. Nothing is computed for inputs that need no gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.kernels import csr, csr_torch
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.rows import Rows, ScatteredRows, dense
from leapmpi.nn.tensors import BlockTensors, Edges, PartialBlock, operations
from leapmpi.system.worker_threads import threads


class _WeightedSum(Function):
    @staticmethod
    def forward(ctx, z: Tensor, weight: Tensor, edges: Edges) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(z if ctx.needs_input_grad[1] else None, weight)
        return operations(z.device).weighted_sum(edges.indptr, edges.indices, weight, z)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        z, weight = ctx.saved_tensors
        edges, sums = ctx.edges, operations(grad.device)
        grad_z = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_z = at_sources(edges, weight, grad)
        if ctx.needs_input_grad[1]:
            grad_weight = sums.edge_products(edges.indptr, edges.indices, grad, z, weight.shape[1])
        return grad_z, grad_weight, None


class _EdgeSoftmax(Function):
    @staticmethod
    def forward(ctx, source: Tensor, target: Tensor, edges: Edges, slope: float) -> Tensor:
        ctx.edges, ctx.slope = edges, slope
        share = operations(source.device).softmax(edges.indptr, edges.indices, source, target, slope)
        ctx.save_for_backward(source, target, share)
        return share

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        source, target, share = ctx.saved_tensors
        edges, sums = ctx.edges, operations(grad.device)
        change = sums.softmax_backward(edges.indptr, edges.indices, source, target, ctx.slope, share, grad)
        by_source, number = edges.transposed
        grad_source = sums.edge_sums(by_source.indptr, number, change)
        return grad_source, _totals(edges, change), None, None


class _Softmax(Function):
    @staticmethod
    def forward(ctx, score: Tensor, edges: Edges) -> Tensor:
        # The kernel of attention serves: no scores of destinations are added, and slope 1 rectifies nothing.
        ctx.edges, ctx.zeros = edges_of_their_own(edges), score.new_zeros(edges.destinations, score.shape[1])
        share = operations(score.device).softmax(edges.indptr, ctx.edges.indices, score, ctx.zeros, 1.0)
        ctx.save_for_backward(score, share)
        return share

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        (score, share), edges = ctx.saved_tensors, ctx.edges
        operands = edges.indptr, edges.indices, score, ctx.zeros, 1.0, share, grad.contiguous()
        return operations(grad.device).softmax_backward(*operands), None


class _Repeated(Function):
    @staticmethod
    def forward(ctx, values: Tensor, edges: Edges) -> Tensor:
        ctx.edges = edges
        return values.index_select(0, edges.numbers)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        return _totals(ctx.edges, grad), None


class _Totals(Function):
    @staticmethod
    def forward(ctx, values: Tensor, edges: Edges) -> Tensor:
        ctx.edges = edges
        return _totals(edges, values)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        return grad.index_select(0, ctx.edges.numbers), None


def _totals(edges: Edges, values: Tensor) -> Tensor:
    every = torch.arange(len(values), device=values.device)
    return operations(values.device).edge_sums(edges.indptr, every, values.contiguous())


class _Maximum(Function):
    @staticmethod
    def forward(ctx, z: Tensor, edges: Edges) -> Tensor:
        out, chosen = operations(z.device).maximum(edges.indptr, edges.indices, z)
        ctx.sources = len(z)
        ctx.save_for_backward(chosen)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        (chosen,) = ctx.saved_tensors
        return operations(grad.device).maximum_backward(chosen, grad, ctx.sources), None


def at_sources(edges: Edges, weight: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient of the rows, float[sources, width], from `grad`, that of their weighted sum.

    `weight` is float[edges, heads] as in `weighted_sum`. Each row is summed in the order of edges.
    """
    if on_host(grad.device) and threads() == 1:
        # The same bits without the edges by source, which most blocks would need only once.
        found = grad.new_zeros(edges.sources, grad.shape[1])
        csr.add_to_sources(found, edges.indptr, edges.indices, weight, grad.contiguous())
        return found
    by_source, number = edges.transposed
    if on_host(grad.device):
        return csr.weighted_sum(by_source.indptr, by_source.indices, weight[number], grad)
    return csr_torch.weighted_sum(by_source.indptr, by_source.indices, weight, grad, number)


def weighted_sum(edges: Edges, z: Rows, weight: Tensor) -> Tensor:
    """Sum of weighted source rows per destination.

    `z` is float[sources, width]; `weight` float[edges], or float[edges, heads] where each head weights its own
    slice of the columns (heads must divide the width). Returns float[destinations, width]; both are differentiable.
    """
    if isinstance(z, ScatteredRows) and weight.dim() == 1 and not weight.requires_grad:
        return z.weighted_sums(edges.indptr, edges.indices, weight)
    return _WeightedSum.apply(dense(z), weight if weight.dim() == 2 else weight.unsqueeze(1), edges)


def mean(block: BlockTensors | PartialBlock, z: Rows) -> Tensor:
    """Estimate the mean of `z` (float[n_src, width]) over the in-neighbours of each destination; 0 without any."""
    return weighted_sum(block.edges, z, block.share(z.dtype))


def total(block: BlockTensors | PartialBlock, z: Rows) -> Tensor:
    """Sum of `z` (float[n_src, width]) over each destination's sampled edges, times their weights if they have any."""
    edges = len(block.edges.indices)
    weight = torch.ones(edges, dtype=z.dtype, device=z.device) if block.weight is None else block.weight.to(z.dtype)
    return weighted_sum(block.edges, z, weight)


def maximum(edges: Edges, z: Rows) -> Tensor:
    """Take the largest of `z` (float[sources, width]) over each destination's edges, column by column; 0 without any.

    Of equal values the first in the order of edges gets the gradient, which is that of the lowest original id.
    """
    return _Maximum.apply(dense(z), edges)


def rows_by_edge(edges: Edges, z: Tensor) -> Tensor:
    """Copy the source row of each edge, float[edges, width], for messages that read what edges carry."""
    count = len(edges.indices)
    every = torch.arange(count + 1, device=z.device)
    return weighted_sum(Edges(every, edges.indices, edges.sources), z, z.new_ones(count))


def edges_of_their_own(edges: Edges) -> Edges:
    """Return the same edges, each with a source of its own, to aggregate a row per edge."""
    count = len(edges.indices)
    return Edges(edges.indptr, torch.arange(count, dtype=edges.indices.dtype, device=edges.indices.device), count)


def edge_softmax(edges: Edges, source: Tensor, target: Tensor, slope: float) -> Tensor:
    """Compute attention shares: softmax over each destination's edges of LeakyReLU(source score + destination score).

    `source` is float[sources, heads], `target` float[destinations, heads], `slope` that of LeakyReLU's negative side.
    Returns float[edges, heads]. Velickovic et al., "Graph attention networks" (ICLR 2018), equation 3.
    """
    return _EdgeSoftmax.apply(source, target, edges, slope)


def softmax_share(edges: Edges, score: Tensor) -> tuple[Tensor, Tensor]:
    """Take the softmax of scores float[edges, heads] over some of the edges of each destination.

    Returns `softmax_of`, and the logarithm of the sum of exponentials, float[n_dst, heads], -inf without edges. Both
    are differentiable.
    """
    share, by_edge = softmax_of(edges, score), edges_of_their_own(edges)

    # The logarithm by its value, with a gradient that is the share of each edge.
    changing = weighted_sum(by_edge, score, share.detach())
    with torch.no_grad():
        top = maximum(by_edge, score)
        powers = (score - top.repeat_interleave(edges.counts, dim=0)).exp()
        logarithm = top + weighted_sum(by_edge, powers, powers.new_ones(len(powers))).log()
    return share, changing + (logarithm - changing.detach())


def softmax_of(edges: Edges, score: Tensor) -> Tensor:
    """Take the softmax of scores float[edges, heads] over the edges of each destination."""
    return _Softmax.apply(score.contiguous(), edges)


def repeated(edges: Edges, values: Tensor) -> Tensor:
    """Repeat the row of each destination at its edges: float[destinations, heads] -> float[edges, heads]."""
    return _Repeated.apply(values, edges)


def totals(edges: Edges, values: Tensor) -> Tensor:
    """Add up the rows of the edges of each destination: float[edges, heads] -> float[destinations, heads]."""
    return _Totals.apply(values, edges)
