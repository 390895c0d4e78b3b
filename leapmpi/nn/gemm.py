"""Dense products whose sums have a fixed order, of rows that are read in place.

A weight gradient sums over all rows of a block. A BLAS library splits that sum by the thread count, so the last bits of
the same run would depend on it; here rows are added one after the other. A BLAS library also reads whole matrices only;
here rows may be given by number or by address, which saves a copy of the features.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.aggregate import weighted_sum
from leapmpi.nn.gradient import add_gradient
from leapmpi.nn.kernels import gemm_tile
from leapmpi.nn.kernels.kernel_choice import matmul, on_host, plus_matmul
from leapmpi.nn.kernels.placed_products import add_products_at_sources, clear_others, place_products
from leapmpi.nn.kernels.row_types import FLOAT32
from leapmpi.nn.kernels.simd import COLUMNS
from leapmpi.nn.rows import Rows, ScatteredRows, SparseMatrix, dense, select
from leapmpi.nn.tensors import Edges
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import share_rows, threads


@compiled
def _fill_by_number(base, step, rows, out):
    """Write the addresses of rows `rows` of a matrix at `base`, the last one repeated."""
    for k in range(len(out)):
        out[k] = base + step * rows[min(k, len(rows) - 1)]


@compiled
def _fill_in_order(base, step, count, out):
    """Write the addresses of the first `count` rows of a matrix at `base`, the last one repeated."""
    for k in range(len(out)):
        out[k] = base + step * min(k, count - 1)


@compiled
def _fill_by_address(addresses, out):
    """Copy `addresses`, the last one repeated."""
    for k in range(len(out)):
        out[k] = addresses[min(k, len(addresses) - 1)]


@compiled
def _sum_of_outer(first, end, g, x, out):
    # A thread takes a row of out, so each sum has a fixed order; four rows of x at a time, so that the row of out is
    # loaded and stored a quarter as often.
    four = len(x) // 4 * 4
    for h in range(first, end):
        for r in range(0, four, 4):
            a, b, c, d = g[r, h], g[r + 1, h], g[r + 2, h], g[r + 3, h]
            for f in range(x.shape[1]):
                out[h, f] = out[h, f] + a * x[r, f] + b * x[r + 1, f] + c * x[r + 2, f] + d * x[r + 3, f]
        for r in range(four, len(x)):
            for f in range(x.shape[1]):
                out[h, f] += g[r, h] * x[r, f]


def product(x: Rows, weight: Tensor, rows: Tensor | None = None) -> Tensor:
    """Return x weight^T for x float[n, in] and weight float[out, in]: float[n, out], differentiable in both.

    With `rows`, int64[n] numbers of rows of x (which is not checked), the product is that of x[rows], without a copy
    on the CPU. Raises ValueError for operands whose shapes or dtypes do not fit.
    """
    if isinstance(x, SparseMatrix):
        # A weighted sum, over the entries of a row, of rows of the transposed weights.
        chosen = select(x, rows)
        return weighted_sum(chosen.entries, weight.t().contiguous(), chosen.values)
    return _Product.apply(x, weight, rows)


@torch.no_grad()
def product_step(
    x: Tensor | ScatteredRows, weight: Tensor, rows: Tensor | None = None
) -> tuple[Tensor, Callable[[Tensor], None]]:
    """Return `product` for an x without gradient, and a function from its gradient to that of the weight.

    The bits are those of autograd, which takes longer.
    """

    @torch.no_grad()
    def backward(gradient: Tensor) -> None:
        if weight.requires_grad:
            add_gradient(weight, sum_of_outer(gradient.contiguous(), x, rows))

    return times_transposed(x, weight, rows), backward


def times_transposed(x: Tensor | ScatteredRows, weight: Tensor, rows: Tensor | None = None) -> Tensor:
    """Return `product`, each element summed in the order of columns on the CPU. Not differentiable."""
    _check(x, weight, rows, x.shape[1] == weight.shape[1])
    count = len(x) if rows is None else len(rows)
    columns = len(weight)
    if not on_host(x.device) or x.dtype != torch.float32 or count == 0:
        product = torch.matmul if on_host(x.device) else matmul
        return product(dense(select(x, rows)), weight.t())

    # Whole tiles; the last may repeat the last row.
    slices = _slices(weight)
    out = weight.new_empty(count + -count % gemm_tile.ROWS, COLUMNS * len(slices))
    x = _contiguous(x)
    places = _addresses(x, rows, len(out))
    if isinstance(x, ScatteredRows) and x.kind != FLOAT32:
        gemm_tile.products_of(x.kind)(places, slices, x.scale, out.numpy())
    else:
        gemm_tile.products(places, slices, out.numpy())

    # Cut the padding off. A slice out[:count] would be a view, and autograd forbids in-place changes of a view that a
    # Function returns, such as `add_`. So a new tensor takes the same memory, without the rows of the padding: it is no
    # view, and nothing is copied.
    if columns < out.shape[1]:
        return out[:count, :columns].contiguous()
    return out.new_empty(0).set_(out.untyped_storage(), 0, (count, columns), (columns, 1))


def add_product(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Add x weight^T for x float[n, in] and weight float[out, in] to `total`, float[n, out]. Not differentiable."""
    if on_host(x.device):
        return total.add_(times_transposed(x, weight))
    return plus_matmul(total, x, weight.t())


def place_product(
    out: Tensor,
    places: Tensor,
    x: Tensor | ScatteredRows,
    weight: Tensor,
    rows: Tensor | None = None,
    adds: bool = False,
) -> None:
    """Write `product` to the rows `places` (int64[n], distinct) of `out`, or add it to them. Not differentiable.

    On the CPU no matrix of the products is made. Raises ValueError as `product` does.
    """
    if _tiled(x) and len(places):
        _check(x, weight, rows, x.shape[1] == weight.shape[1])
        x = _contiguous(x)
        addresses = _addresses(x, rows, len(places) + -len(places) % gemm_tile.ROWS)
        place_products(addresses, len(places), _slices(weight), _array(places), adds, out.numpy())
    elif adds:
        out.index_add_(0, places, times_transposed(x, weight, rows))
    else:
        out.index_copy_(0, places, times_transposed(x, weight, rows))


def adds_at_sources(x: Tensor) -> bool:
    """Return whether `SumsAtSources` serves products of `x`: single precision on the CPU, with one thread."""
    return _tiled(x) and threads() == 1


class SumsAtSources:
    """Sums of products at the sources of edges, `rows` (int, int) in all; rows are written when they are first met."""

    def __init__(self, like: Tensor, rows: tuple[int, int]) -> None:
        self._sums, self._begun = like.new_empty(rows), np.zeros(rows[0], np.bool_)

    def add(self, edges: Edges, groups: slice, factors: Tensor, x: Tensor, weight: Tensor, rows: Tensor) -> None:
        """Add factors[e] times row i of `product` to row s for each edge e, from source s to destination i.

        Rows of the product, which is not made, are those of the destinations `groups` of `edges`; factors:
        float32[edges]. Not differentiable. Raises ValueError as `product` does.
        """
        _check(x, weight, rows, x.shape[1] == weight.shape[1])
        if len(rows):
            x = x.detach().contiguous()
            addresses = _addresses(x, rows, len(rows) + -len(rows) % gemm_tile.ROWS)
            indptr = _array(edges.indptr[groups.start : groups.stop + 1])
            lists = indptr, _array(edges.indices), _array(factors)
            add_products_at_sources(addresses, len(rows), _slices(weight), *lists, self._sums.numpy(), self._begun)

    def finish(self) -> Tensor:
        """Return the sums, float32[sources, out], zeros for sources without an edge."""
        clear_others(self._sums.numpy(), self._begun)
        return self._sums


def sum_of_outer(g: Tensor, x: Tensor | ScatteredRows, rows: Tensor | None = None) -> Tensor:
    """Return g^T x for g float[n, out] and x float[n, in], summed in the order of rows on the CPU: float[out, in].

    With `rows`, int64[n] numbers of rows of x (which is not checked), x[rows] takes the place of x. Raises ValueError
    for operands whose shapes or dtypes do not fit.
    """
    count = len(x) if rows is None else len(rows)
    columns, width = g.shape[1], x.shape[1]
    _check(x, g, rows, len(g) == count)
    if not on_host(x.device):
        return g.t() @ dense(select(x, rows))

    # Double precision, and rows narrower than a vector.
    if x.dtype != torch.float32 or width < COLUMNS:
        out = g.new_zeros(columns, width)
        arrays = _array(g), _array(dense(select(x, rows))), out.numpy()
        share_rows(_sum_of_outer, columns, *arrays, least=2)
        return out

    # The height of tiles, which are those of g^T x, divides the columns of g.
    if columns % gemm_tile.OUTER_ROWS:
        g = F.pad(g, (0, -columns % gemm_tile.OUTER_ROWS))
    out = g.new_zeros(g.shape[1], width)
    x = _contiguous(x)
    places = _addresses(x, rows, count)
    if isinstance(x, ScatteredRows) and x.kind != FLOAT32:
        gemm_tile.sum_of_outer_of(x.kind)(_array(g), places, x.scale, out.numpy())
    else:
        gemm_tile.sum_of_outer(_array(g), places, out.numpy())
    return out[:columns].contiguous()


class _Product(Function):
    @staticmethod
    def forward(ctx, x: Tensor | ScatteredRows, weight: Tensor, rows: Tensor | None) -> Tensor:
        trains = ctx.needs_input_grad[1]
        ctx.scattered = x if trains and isinstance(x, ScatteredRows) else None  # autograd saves tensors only
        ctx.save_for_backward(x if trains and isinstance(x, Tensor) else None, weight, rows)
        ctx.shape = x.shape
        return times_transposed(x, weight, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight, rows = ctx.saved_tensors
        grad_x = times_transposed(grad, weight.t()) if ctx.needs_input_grad[0] else None
        if grad_x is not None and rows is not None:
            grad_x = grad_x.new_zeros(ctx.shape).index_add_(0, rows, grad_x)

        # Autograd frees saved tensors after backward; the scattered rows are freed likewise.
        inputs = x if ctx.scattered is None else ctx.scattered
        grad_weight = sum_of_outer(grad.contiguous(), inputs, rows) if ctx.needs_input_grad[1] else None
        ctx.scattered = None
        return grad_x, grad_weight, None


def _tiled(x: Tensor | ScatteredRows) -> bool:
    """Return whether kernels read the rows of `x` as single-precision numbers in place."""
    plain = isinstance(x, Tensor) or x.kind == FLOAT32
    return plain and on_host(x.device) and x.dtype == torch.float32


def _slices(weight: Tensor) -> np.ndarray:
    """Cut float32 weight[out, in] into slices of 16 rows, padded by zeros, as kernels read them: [k, in, 16]."""
    columns, width = weight.shape
    if columns % COLUMNS:
        weight = F.pad(weight, (0, 0, 0, -columns % COLUMNS))
    return weight.detach().view(-1, COLUMNS, width).transpose(1, 2).contiguous().numpy()


def _check(x: Tensor | ScatteredRows, factor: Tensor, rows: Tensor | None, fits: bool) -> None:
    """Raise ValueError for operands that the compiled kernels would read past their ends or as another dtype."""
    if not fits or x.dtype != factor.dtype or (rows is not None and rows.dtype != torch.int64):
        shapes = ", ".join(f"{each.dtype} {tuple(each.shape)}" for each in (x, factor, rows) if each is not None)
        raise ValueError(f"these do not multiply: {shapes}")


def _contiguous(x: Tensor | ScatteredRows) -> Tensor | ScatteredRows:
    return x.detach().contiguous() if isinstance(x, Tensor) else x


def _addresses(x: Tensor | ScatteredRows, rows: Tensor | None, count: int) -> np.ndarray:
    """Return addresses int64[count] of the rows of x, or of x[rows], the last one repeated.

    A tensor x must be contiguous. `x` must be kept while the addresses are in use.
    """
    out = np.empty(count, np.int64)
    if isinstance(x, ScatteredRows):
        _fill_by_address(_array(select(x, rows).addresses), out)
    elif rows is None:
        _fill_in_order(x.data_ptr(), x.element_size() * x.shape[1], x.shape[0], out)
    else:
        _fill_by_number(x.data_ptr(), x.element_size() * x.shape[1], _array(rows), out)
    return out


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()
