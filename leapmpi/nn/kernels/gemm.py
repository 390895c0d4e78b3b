"""Dense products whose sums have a fixed order, of rows that are read where they lie.

A weight gradient sums over all rows of a block. A BLAS library cuts that sum by the thread count, so the same run
would differ in its last bits on other thread counts; here it is summed row after row. Nor does one read rows by number,
which spares a copy of the features.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.kernels import gemm_tile
from leapmpi.nn.kernels.simd import COLUMNS
from leapmpi.nn.rows import Rows, chosen, dense
from leapmpi.nn.scattered_rows import ScatteredRows
from leapmpi.nn.sparse_matrix import SparseMatrix
from leapmpi.system.jit import compiled, compiled_parallel, prange


@compiled
def _in_matrix(base, step, rows, found):
    for k in range(len(found)):
        found[k] = base + step * rows[min(k, len(rows) - 1)]


@compiled
def _repeat_last(addresses, found):
    for k in range(len(found)):
        found[k] = addresses[min(k, len(addresses) - 1)]


@compiled_parallel
def _sum_of_outer(g, x, out):
    four = len(x) // 4 * 4
    for h in prange(g.shape[1]):
        for r in range(0, four, 4):
            a, b, c, d = g[r, h], g[r + 1, h], g[r + 2, h], g[r + 3, h]
            for f in range(x.shape[1]):
                out[h, f] = out[h, f] + a * x[r, f] + b * x[r + 1, f] + c * x[r + 2, f] + d * x[r + 3, f]
        for r in range(four, len(x)):
            for f in range(x.shape[1]):
                out[h, f] += g[r, h] * x[r, f]


def product(x: Rows, weight: Tensor, rows: Tensor | None = None) -> Tensor:
    """x weight^T for float[n, in] and float[out, in]: float[n, out], differentiable.

    With `rows`, int64[n] that lie in x (which is not checked), the product is that of x[rows], of which no copy is made
    on the CPU. Raises ValueError for operands that do not fit.
    """
    if isinstance(x, SparseMatrix):
        return chosen(x, rows).times(weight)
    return _Product.apply(x, weight, rows)


def times_transposed(x: Tensor | ScatteredRows, weight: Tensor, rows: Tensor | None = None) -> Tensor:
    """What `product` gives, each element summed in the order of columns on the CPU. Not differentiable."""
    _check(x, weight, rows, x.shape[1] == weight.shape[1])
    count, (columns, width) = len(x) if rows is None else len(rows), weight.shape
    if x.device.type != "cpu" or x.dtype != torch.float32 or count == 0:
        return dense(chosen(x, rows)) @ weight.t()
    if columns % COLUMNS:
        weight = F.pad(weight, (0, 0, 0, -columns % COLUMNS))
    slices = weight.detach().view(-1, COLUMNS, width).transpose(1, 2).contiguous()
    out = weight.new_empty(count + -count % gemm_tile.ROWS, len(weight))
    x = _contiguous(x)
    gemm_tile.products(_addresses(x, rows, len(out)), slices.numpy(), out.numpy(), numba.get_num_threads())
    if columns < out.shape[1]:
        return out[:count, :columns].contiguous()
    # The same memory without the last rows. A slice is a view, which autograd forbids to change in place.
    return out.new_empty(0).set_(out.untyped_storage(), 0, (count, columns), (columns, 1))


def sum_of_outer(g: Tensor, x: Tensor | ScatteredRows, rows: Tensor | None = None) -> Tensor:
    """g^T x for float[n, out] and float[n, in], each element summed in the order of rows on the CPU: float[out, in].

    With `rows`, int64[n] that lie in x (which is not checked), the products are of x[rows]. Raises ValueError for
    operands that do not fit.
    """
    count, (columns, width) = len(x) if rows is None else len(rows), (g.shape[1], x.shape[1])
    _check(x, g, rows, len(g) == count)
    if x.device.type != "cpu":
        return g.t() @ chosen(x, rows)
    if x.dtype != torch.float32 or width < gemm_tile.ROWS:
        out = g.new_zeros(columns, width)
        _sum_of_outer(_array(g), _array(chosen(x, rows)), out.numpy())
        return out
    if columns % COLUMNS:
        g = F.pad(g, (0, -columns % COLUMNS))
    out = g.new_zeros(width, g.shape[1])
    x = _contiguous(x)
    gemm_tile.sum_of_outer(_array(g), _addresses(x, rows, count), out.numpy(), numba.get_num_threads())
    return out.t()[:columns].contiguous()


class _Product(Function):
    @staticmethod
    def forward(ctx, x: Tensor | ScatteredRows, weight: Tensor, rows: Tensor | None) -> Tensor:
        learns = ctx.needs_input_grad[1]
        ctx.scattered = x if learns and isinstance(x, ScatteredRows) else None
        ctx.save_for_backward(x if learns and isinstance(x, Tensor) else None, weight, rows)
        ctx.shape = x.shape
        return times_transposed(x, weight, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight, rows = ctx.saved_tensors
        grad_x = times_transposed(grad, weight.t()) if ctx.needs_input_grad[0] else None
        if grad_x is not None and rows is not None:
            grad_x = grad_x.new_zeros(ctx.shape).index_add_(0, rows, grad_x)
        read = x if ctx.scattered is None else ctx.scattered
        grad_weight = sum_of_outer(grad.contiguous(), read, rows) if ctx.needs_input_grad[1] else None
        ctx.scattered = None  # as tensors that are saved are let go
        return grad_x, grad_weight, None


def _check(x: Tensor | ScatteredRows, factor: Tensor, rows: Tensor | None, fits: bool) -> None:
    """Raise ValueError for operands that the compiled kernels would read past their ends or take for others."""
    if not fits or x.dtype != factor.dtype or (rows is not None and rows.dtype != torch.int64):
        shapes = ", ".join(f"{each.dtype} {tuple(each.shape)}" for each in (x, factor, rows) if each is not None)
        raise ValueError(f"these do not multiply: {shapes}")


def _contiguous(x: Tensor | ScatteredRows) -> Tensor | ScatteredRows:
    return x.detach().contiguous() if isinstance(x, Tensor) else x


def _addresses(x: Tensor | ScatteredRows, rows: Tensor | None, count: int) -> np.ndarray:
    """int64[count]: those of the rows of x, or of x[rows], the last one repeated. `x` must outlive their use."""
    found = np.empty(count, np.int64)
    if isinstance(x, ScatteredRows):
        _repeat_last(_array(chosen(x, rows).addresses), found)
    else:
        numbers = np.arange(len(x)) if rows is None else _array(rows)
        _in_matrix(x.data_ptr(), x.element_size() * x.shape[1], numbers, found)
    return found


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()
