"""Dense products whose sums have a fixed order, and the projection layer built on them.

A weight gradient sums over all rows of a block. A BLAS library cuts that sum by the thread count, so the same run
would differ in its last bits on other thread counts; here it is summed row after row.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn import kernels
from leapmpi.nn.sparse_matrix import Rows, SparseMatrix

_SIZES = (4096, 512, 64)
"""Rows multiplied at once: oneDNN compiles a program for every new number of rows, and blocks differ in theirs."""

_WORTH_ONEDNN = 1_500_000  # multiplications; below, calling it costs more than it saves


def _has_onednn(x: Tensor) -> bool:
    """Whether torch's oneDNN can multiply `x`.

    On AMD processors torch's BLAS leaves half of the vector unit unused; oneDNN does not, and its results do not
    depend on the thread count.
    """
    on_host = x.dtype == torch.float32 and x.device.type == "cpu" and x.numel() > 0
    return on_host and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _onednn(x: Tensor, weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")


def times_transposed(x: Tensor, weight: Tensor) -> Tensor:
    """x weight^T for float[rows, in] and float[out, in]: float[rows, out]. Not differentiable."""
    if x.numel() * len(weight) < _WORTH_ONEDNN or not _has_onednn(x):
        return x @ weight.t().contiguous()
    weight, pieces, first = weight.contiguous(), [], 0
    for rows in _SIZES:
        while len(x) - first >= rows:
            pieces.append(_onednn(x[first : first + rows], weight))
            first += rows
    pieces.append(x[first:] @ weight.t())
    return torch.cat(pieces)


def sum_of_outer(g: Tensor, x: Tensor) -> Tensor:
    """g^T x for float[rows, out] and float[rows, in], the rows added in a fixed order: float[out, in]."""
    return g.t() @ x if x.device.type != "cpu" else kernels.sum_of_outer(g, x)


class _Product(Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        return times_transposed(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad_x = times_transposed(grad, weight.t()) if ctx.needs_input_grad[0] else None
        grad_weight = sum_of_outer(grad.contiguous(), x) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight


def product(x: Rows, weight: Tensor) -> Tensor:
    """x weight^T for float[rows, in] and float[out, in]: float[rows, out], differentiable."""
    if isinstance(x, SparseMatrix):
        return x.times(weight)
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

    def forward(self, x: Rows) -> Tensor:
        """float[rows, in] -> float[rows, out]."""
        return product(x, self.weight)
