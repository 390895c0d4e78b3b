"""Dense products whose sums have a fixed order, and the projection layer built on them.

A weight gradient sums over all rows of a block. A BLAS library cuts that sum by the thread count, so the same run
would differ in its last bits on other thread counts; here it is summed row after row. Nor does one read rows where they
lie, which spares a copy of the features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn import kernels
from leapmpi.nn.sparse_matrix import Rows, SparseMatrix


def times_transposed(x: Tensor, weight: Tensor, rows: Tensor | None = None) -> Tensor:
    """x weight^T for float[n, in] and float[out, in]: float[n, out]; of x[rows] with `rows`. Not differentiable."""
    if x.device.type == "cpu":
        return kernels.product(x, weight, rows)
    return kernels.chosen(x, rows) @ weight.t()


def sum_of_outer(g: Tensor, x: Tensor, rows: Tensor | None = None) -> Tensor:
    """g^T x for float[n, out] and float[n, in], rows added in a fixed order: float[out, in]; of x[rows] with `rows`."""
    if x.device.type == "cpu":
        return kernels.sum_of_outer(g, x, rows)
    return g.t() @ kernels.chosen(x, rows)


class _Product(Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, rows: Tensor | None) -> Tensor:
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight, rows)
        ctx.shape = x.shape
        return times_transposed(x, weight, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight, rows = ctx.saved_tensors
        grad_x = times_transposed(grad, weight.t()) if ctx.needs_input_grad[0] else None
        if grad_x is not None and rows is not None:
            grad_x = grad_x.new_zeros(ctx.shape).index_add_(0, rows, grad_x)
        grad_weight = sum_of_outer(grad.contiguous(), x, rows) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, None


def product(x: Rows, weight: Tensor, rows: Tensor | None = None) -> Tensor:
    """x weight^T for float[n, in] and float[out, in]: float[n, out], differentiable.

    With `rows`, int64[n] that lie in x, the product is that of x[rows], of which no copy is made on the CPU.
    """
    if isinstance(x, SparseMatrix):
        return kernels.chosen(x, rows).times(weight)
    return _Product.apply(x, weight, rows)


class Projection(nn.Module):
    """Multiplication of rows by a weight float[out, in], without bias.

    `fans` overrides the (in, out) widths from which the initial weights' range is taken, where the weight
    stands for several maps side by side.
    """

    def __init__(self, in_dim: int, out_dim: int, fans: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim))
        self.fans = {"weight": fans or (in_dim, out_dim)}

    def forward(self, x: Rows, rows: Tensor | None = None) -> Tensor:
        """float[n, in] -> float[n, out]; with `rows`, int64[n] that lie in x, of x[rows]."""
        return product(x, self.weight, rows)
