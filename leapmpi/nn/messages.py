"""Differentiable aggregation of messages that are not linear in rows: softmax per channel, FiLM, scores of GATv2.

As in aggregate.py, gradients of sources are sums over the transposed edge list, each row by one thread in edge order.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.kernels import message_sums, message_sums_torch
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.tensors import Edges


def kernels(device: torch.device) -> ModuleType:
    """Return the module that aggregates messages on `device`."""
    return message_sums if on_host(device) else message_sums_torch


class _SoftmaxMean(Function):
    @staticmethod
    def forward(ctx, z: Tensor, t: Tensor, shift: Tensor | None, edges: Edges, stops: bool) -> tuple[Tensor, Tensor]:
        ctx.edges, ctx.stops = edges, stops
        logs, mean = kernels(z.device).softmax_mean(edges.indptr, edges.indices, shift, z, t)
        ctx.save_for_backward(z, t, shift, logs, mean)
        return logs, mean

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_logs: Tensor, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        z, t, shift, logs, mean = ctx.saved_tensors
        by_source, number = ctx.edges.transposed
        change = None if ctx.stops else grad_logs - grad * mean
        by_edge = None if shift is None else shift[number]
        grad_z, of_score = kernels(z.device).softmax_mean_backward(
            by_source.indptr, by_source.indices, by_edge, z, t, logs, grad, change
        )
        if of_score is None:
            return grad_z, None, None, None, None

        # A score is t z: what it gets goes to both.
        of_score += z * grad_z
        grad_t = (z * of_score).sum(0).sum().view(t.shape) if ctx.needs_input_grad[1] else None
        return grad_z + t * of_score, grad_t, None, None, None


class _ModulatedSum(Function):
    @staticmethod
    def forward(ctx, z: Tensor, gamma: Tensor, beta: Tensor, weight: Tensor, edges: Edges) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(z, gamma, beta, weight)
        return kernels(z.device).modulated_sum(edges.indptr, edges.indices, weight, z, gamma, beta)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        z, gamma, beta, weight = ctx.saved_tensors
        edges, sums = ctx.edges, kernels(z.device)
        by_source, number = edges.transposed
        of_gamma, of_beta = sums.modulated_sum_backward(edges.indptr, edges.indices, weight, z, gamma, beta, grad)
        of_z = sums.modulated_sum_sources(
            by_source.indptr, by_source.indices, weight[number], z, gamma, beta, grad.contiguous()
        )
        return of_z, of_gamma, of_beta, None, None


class _PairScores(Function):
    @staticmethod
    def forward(ctx, source: Tensor, target: Tensor, attend: Tensor, edges: Edges, slope: float) -> Tensor:
        ctx.edges, ctx.slope = edges, slope
        ctx.save_for_backward(source, target, attend)
        return kernels(source.device).pair_scores(edges.indptr, edges.indices, source, target, attend, slope)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        source, target, attend = ctx.saved_tensors
        edges, slope, sums = ctx.edges, ctx.slope, kernels(source.device)
        by_source, number = edges.transposed
        every = torch.arange(len(grad), device=grad.device)
        of_target, of_attend = sums.pair_scores_backward(
            edges.indptr, edges.indices, every, target, source, attend, slope, grad, True
        )
        of_source, _ = sums.pair_scores_backward(
            by_source.indptr, by_source.indices, number, source, target, attend, slope, grad, False
        )
        return of_source, of_target, of_attend, None, None


def softmax_mean(
    edges: Edges, z: Tensor, t: Tensor, weight: Tensor | None = None, stops: bool = False
) -> tuple[Tensor, Tensor]:
    """Aggregate by softmax, channel by channel: the logarithm of the sum of exponentials of t z, and the mean.

    `z` float[sources, width], `t` a tensor of one number; `weight` float[edges], positive, multiplies exponentials.
    Both results are float[destinations, width], -inf and 0 without edges, and differentiable in z and t; with `stops`
    the exponentials count as constants. Li et al., "DeeperGCN" (2020), section 3.2.
    """
    return _SoftmaxMean.apply(z, t, None if weight is None else weight.log(), edges, stops)


def modulated_sum(edges: Edges, z: Tensor, gamma: Tensor, beta: Tensor, weight: Tensor) -> Tensor:
    """Sum weight x ReLU(gamma z + beta) over each destination's edges, by its gamma and beta.

    `z` float[sources, width], `gamma` and `beta` float[destinations, width], `weight` float[edges]; differentiable in
    the first three. Returns float[destinations, width]. Brockschmidt, "GNN-FiLM" (ICML 2020), equation 4.
    """
    return _ModulatedSum.apply(z, gamma.contiguous(), beta.contiguous(), weight, edges)


def pair_scores(edges: Edges, source: Tensor, target: Tensor, attend: Tensor, slope: float) -> Tensor:
    """Compute scores of edges, float[edges, heads]: attend . LeakyReLU(source + target), each head by its columns.

    `source` float[sources, heads x width], `target` float[destinations, heads x width], `attend` float[heads, width];
    differentiable in all three. Brody, Alon and Yahav, "How attentive are graph attention networks?" (ICLR 2022).
    """
    return _PairScores.apply(source, target, attend, edges, slope)
