"""Dense products whose sums have a fixed order, and the projection layer built on them.

A weight gradient sums over all rows of a block. A BLAS library cuts that sum by the thread count, so the same run
would differ in its last bits on other thread counts; here it is cut into fixed pieces instead, at no cost in time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

PIECE = 512
"""Rows per piece of a weight gradient: longer sums are cut by threads, shorter ones are slower."""
_PIECES = 16  # added up at once, which bounds the memory for partial sums


def sum_of_outer(g: Tensor, x: Tensor) -> Tensor:
    """g^T x for float[rows, out] and float[rows, in], summed in fixed pieces: float[out, in]."""
    total = g.new_zeros(g.shape[1], x.shape[1])
    whole = len(x) // PIECE * PIECE
    for first in range(0, whole, PIECE * _PIECES):
        rows = slice(first, min(first + PIECE * _PIECES, whole))
        pieces_g, pieces_x = g[rows].unflatten(0, (-1, PIECE)), x[rows].unflatten(0, (-1, PIECE))
        total += torch.bmm(pieces_g.transpose(1, 2), pieces_x).sum(0)
    if whole < len(x):
        total.addmm_(g[whole:].t(), x[whole:])
    return total


class _Product(Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        return x @ weight.t().contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad_x = grad @ weight if ctx.needs_input_grad[0] else None
        grad_weight = sum_of_outer(grad.contiguous(), x) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x weight^T for float[rows, in] and float[out, in]: float[rows, out], differentiable."""
    return _Product.apply(x, weight)


class Projection(nn.Module):
    """Multiplication of rows by a weight float[out, in], without bias.

    `fans` overrides the (in, out) widths from which the initial weights' range is taken, where the weight
    stands for several maps side by side.
    """

    def __init__(self, in_dim: int, out_dim: int, fans: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim))
        self.fans = {"weight": fans or (in_dim, out_dim)}

    def forward(self, x: Tensor) -> Tensor:
        """float[rows, in] -> float[rows, out]."""
        return product(x, self.weight)
