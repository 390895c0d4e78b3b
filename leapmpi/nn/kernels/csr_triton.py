"""Lists of edges in Triton, and sums over them: rows are added up as they are read, not copied by edge.

Imported only if Triton is available (triton_choice.py). Sums follow the order of edges, so they have the same bits in
every run. The gradient of the rows is the same sum over the transposed list.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from leapmpi.nn.kernels.triton_choice import launch

_MOST_COLUMNS = 256
"""Columns of a row that one program adds up."""


_ROWS, _EDGES = 32, 16
"""Rows of one program, and edges of each that it reads at once."""

_BLOCK = 256
"""Elements of one program."""


@triton.jit
def _weighted_sum(
    indptr, indices, number, weight, z, out, width, heads, head_width, NUMBERED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    head = column // head_width
    total = tl.zeros((BLOCK,), dtype=z.dtype.element_ty)
    for edge in range(tl.load(indptr + row), tl.load(indptr + row + 1)):
        source = tl.load(indices + edge).to(tl.int64)
        place = tl.load(number + edge) if NUMBERED else edge
        share = tl.load(weight + place * heads + head, mask=inside, other=0)
        total += share * tl.load(z + source * width + column, mask=inside, other=0)
    tl.store(out + row * width + column, total, mask=inside)


def weighted_sum(indptr: Tensor, indices: Tensor, weight: Tensor, z: Tensor, number: Tensor | None = None) -> Tensor:
    """Do the same as in csr.py, in float32 or float64; edge e has the weight `number[e]` where numbers are given."""
    rows, (width, heads) = len(indptr) - 1, (z.shape[1], weight.shape[1])
    out = z.new_empty(rows, width)
    if not out.numel():
        return out
    block = min(_MOST_COLUMNS, triton.next_power_of_2(width))
    operands = indptr, indices, indices if number is None else number, weight.contiguous(), z.contiguous(), out
    grid = rows, triton.cdiv(width, block)
    numbered = number is not None
    launch(_weighted_sum, grid, *operands, width, heads, width // heads, NUMBERED=numbered, BLOCK=block)
    return out


@triton.jit
def _first_not_below(values, count, steps, wanted):
    # Of `count` ascending values; `steps` halvings leave one place.
    low = tl.zeros_like(wanted)
    high = low + count
    for _ in range(steps):
        middle = (low + high) >> 1
        below = (low < high) & (tl.load(values + middle, mask=low < high, other=0).to(tl.int64) < wanted)
        low, high = tl.where(below, middle + 1, low), tl.where(below, high, middle)
    return low


@triton.jit(do_not_specialize=["rows", "edges", "sources", "row_steps", "edge_steps"])
def _transpose(
    indptr, ascending, order, out_indptr, out_rows, rows, edges, sources, row_steps, edge_steps, BLOCK: tl.constexpr
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    edge = tl.load(order + place, mask=place < edges, other=0)
    row = _first_not_below(indptr, rows + 1, row_steps, edge + 1) - 1
    tl.store(out_rows + place, row.to(out_rows.dtype.element_ty), mask=place < edges)
    first = _first_not_below(ascending, edges, edge_steps, place)
    tl.store(out_indptr + place, first, mask=place <= sources)


def transpose(indptr: Tensor, indices: Tensor, sources: int) -> tuple[Tensor, Tensor, Tensor]:
    """Do the same as in csr.py, bit for bit: only whole numbers are moved."""
    rows, edges = len(indptr) - 1, len(indices)
    ascending, order = indices.sort(stable=True)
    out_indptr, out_rows = indptr.new_empty(sources + 1), torch.empty_like(indices)
    operands = indptr, ascending, order, out_indptr, out_rows, rows, edges, sources
    grid = (triton.cdiv(max(edges, sources + 1), _BLOCK),)
    launch(_transpose, grid, *operands, (rows + 1).bit_length(), edges.bit_length(), BLOCK=_BLOCK)
    return out_indptr, out_rows, order


@triton.jit
def _quotient(a, b):
    # Correctly rounded, as torch's is.
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    else:
        return a / b


@triton.jit
def _rows_of_program(indptr, rows, ROWS: tl.constexpr):
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    begin = tl.load(indptr + row, mask=row < rows, other=0)
    return row, begin, tl.load(indptr + row + 1, mask=row < rows, other=0)


@triton.jit
def _share(weight, edge, inside, divisor, WEIGHTED: tl.constexpr):
    if WEIGHTED:
        return _quotient(tl.load(weight + edge, mask=inside, other=0).to(divisor.dtype), divisor)
    else:
        return _quotient(tl.full(divisor.shape, 1, divisor.dtype), divisor)


@triton.jit(do_not_specialize=["rows"])
def _shares(
    indptr, divisor, weight, out, rows,
    DIVIDED: tl.constexpr, WEIGHTED: tl.constexpr, ROWS: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    row, begin, end = _rows_of_program(indptr, rows, ROWS)
    by = (tl.load(divisor + row, mask=row < rows, other=1) if DIVIDED else end - begin).to(out.dtype.element_ty)
    for first in range(0, tl.max(end - begin), EDGES):
        edge = begin + first + tl.arange(0, EDGES)[None, :]
        share = _share(weight, edge, edge < end, by, WEIGHTED)
        tl.store(out + edge, share + tl.zeros((ROWS, EDGES), share.dtype), mask=edge < end)


def shares(edges: int, indptr: Tensor, divisor: Tensor | None, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return 1, or `weight` (float32[edges]), over the `divisor` of each edge's row: float[edges].

    divisor: int64[rows]; by default the numbers of edges.
    """
    out, rows = torch.empty(edges, dtype=dtype, device=indptr.device), len(indptr) - 1
    if edges:
        operands = indptr, indptr if divisor is None else divisor, out if weight is None else weight, out, rows
        given = {"DIVIDED": divisor is not None, "WEIGHTED": weight is not None}
        launch(_shares, (triton.cdiv(rows, _ROWS),), *operands, **given, ROWS=_ROWS, EDGES=_EDGES)
    return out


@triton.jit(do_not_specialize=["rows"])
def _with_self(indptr, indices, out_indptr, out_indices, rows, ROWS: tl.constexpr, EDGES: tl.constexpr):
    row, begin, end = _rows_of_program(indptr, rows, ROWS)
    tl.store(out_indptr + row, begin + row, mask=row < rows)
    tl.store(out_indptr + row + 1, end + row + 1, mask=row == rows - 1)
    tl.store(out_indices + begin + row, row.to(out_indices.dtype.element_ty), mask=row < rows)
    for first in range(0, tl.max(end - begin), EDGES):
        edge = begin + first + tl.arange(0, EDGES)[None, :]
        source = tl.load(indices + edge, mask=edge < end, other=0)
        tl.store(out_indices + edge + row + 1, source, mask=edge < end)


def with_self(indptr: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Do the same as in csr.py, bit for bit: only whole numbers are moved."""
    rows = len(indptr) - 1
    if not rows:
        return indptr, indices
    out_indptr, out_indices = torch.empty_like(indptr), indices.new_empty(len(indices) + rows)
    operands = indptr, indices, out_indptr, out_indices, rows
    launch(_with_self, (triton.cdiv(rows, _ROWS),), *operands, ROWS=_ROWS, EDGES=_EDGES)
    return out_indptr, out_indices


@triton.jit(do_not_specialize=["rows"])
def _symmetric(
    indptr, indices, root, degree, weight, out, rows, WEIGHTED: tl.constexpr, ROWS: tl.constexpr, EDGES: tl.constexpr
):  # fmt: skip
    row, begin, end = _rows_of_program(indptr, rows, ROWS)
    own = tl.load(root + row, mask=row < rows, other=0)
    tl.store(out + begin + row, own * own, mask=row < rows)
    full = tl.load(degree + row, mask=row < rows, other=1).to(own.dtype)
    by = full if WEIGHTED else (end - begin).to(own.dtype)
    for first in range(0, tl.max(end - begin), EDGES):
        edge = begin + first + tl.arange(0, EDGES)[None, :]
        source = tl.load(indices + edge, mask=edge < end, other=0)
        in_neighbours = _share(weight, edge, edge < end, by, WEIGHTED) * full
        other = own * tl.load(root + source, mask=edge < end, other=0) * in_neighbours
        tl.store(out + edge + row + 1, other, mask=edge < end)


def symmetric_weight(indptr: Tensor, indices: Tensor, root: Tensor, degree: Tensor, weight: Tensor | None) -> Tensor:
    """Return the weights of `symmetric_weight` of gcn.py without weights of edges, in the order of `with_self`.

    root: float[sources], one over the root of degree + 1. degree: int64[rows]. weight: float32[edges], or None.
    """
    rows = len(indptr) - 1
    out = root.new_empty(len(indices) + rows)
    if rows:
        operands = indptr, indices, root, degree, root if weight is None else weight, out, rows
        weighted = weight is not None
        launch(_symmetric, (triton.cdiv(rows, _ROWS),), *operands, WEIGHTED=weighted, ROWS=_ROWS, EDGES=_EDGES)
    return out
