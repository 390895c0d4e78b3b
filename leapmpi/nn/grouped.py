"""Products of rows with the weights of their group: rows of a group follow each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.gemm import sum_of_outer, times_transposed

NO_WEIGHT = -1
"""In the place of the number of a weight: the rows of the group give zeros."""


def grouped_product(
    x: Tensor, weight: Tensor, bias: Tensor | None, numbers: Sequence[int], bounds: Sequence[int]
) -> Tensor:
    """Multiply the rows bounds[k] to bounds[k + 1] of `x` by weight[numbers[k]], and add bias[numbers[k]].

    x: float[n, in]; weight: float[W, out, in]; bias: float[W, out] or None. Returns float[n, out], zeros where the
    number is NO_WEIGHT; differentiable in all three. Sums have a fixed order (gemm.py).
    """
    return _GroupedProduct.apply(x, weight, bias, tuple(numbers), tuple(bounds))


def by_kind(kinds: Tensor, count: int) -> tuple[Tensor, list[int]]:
    """Sort rows by kind, stably: return int64[n], their numbers in this order, and where each of the kinds begins.

    kinds: int64[n], NO_WEIGHT to count - 1. The list has count + 2 entries; the first kind is NO_WEIGHT.
    """
    sizes = torch.bincount(kinds + 1, minlength=count + 1)
    return torch.argsort(kinds, stable=True), [0, *sizes.cumsum(0).tolist()]


class _GroupedProduct(Function):
    @staticmethod
    def forward(ctx, x, weight, bias, numbers, bounds) -> Tensor:
        out = x.new_zeros(len(x), weight.shape[1])
        for number, rows in _groups(numbers, bounds):
            out[rows] = times_transposed(x[rows], weight[number])
            if bias is not None:
                out[rows] += bias[number]
        ctx.numbers, ctx.bounds, ctx.with_bias = numbers, bounds, bias is not None
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad[:3]
        grad = grad.contiguous()
        grad_x = grad.new_zeros(len(grad), weight.shape[2]) if of_x else None
        grad_weight = torch.zeros_like(weight) if of_weight else None
        grad_bias = weight.new_zeros(weight.shape[:2]) if of_bias and ctx.with_bias else None
        for number, rows in _groups(ctx.numbers, ctx.bounds):
            if grad_x is not None:
                grad_x[rows] = times_transposed(grad[rows], weight[number].t())
            if grad_weight is not None:
                grad_weight[number] += sum_of_outer(grad[rows], x[rows])
            if grad_bias is not None:
                grad_bias[number] += grad[rows].sum(0)
        return grad_x, grad_weight, grad_bias, None, None


def _groups(numbers: Sequence[int], bounds: Sequence[int]) -> Iterator[tuple[int, slice]]:
    """Yield the number of the weight, and the rows, of each group with both."""
    for number, (first, end) in zip(numbers, pairwise(bounds), strict=True):
        if number != NO_WEIGHT and first < end:
            yield number, slice(first, end)
