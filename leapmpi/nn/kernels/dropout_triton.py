"""Dropout of rows in one Triton kernel, bit-identical to `mask_vertices_tensor` of nn/dropout.py.

Imported only if Triton is available (triton_choice.py).
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from leapmpi.nn.kernels.triton_choice import launch
from leapmpi.nn.kernels.words_triton import fold

_ROWS, _COLUMNS = 16, 64
"""Size of the table of one program."""


@triton.jit(do_not_specialize=["base", "below", "first", "rows"])
def _mask(x, vertices, out, base, below, first, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (row < rows) & (column < width)

    # A word serves four columns, 16 bits each.
    hashed = fold(base.to(tl.uint64), tl.load(vertices + row, mask=row < rows, other=0))
    place = first.to(tl.int64) + column
    lane = (fold(hashed, place >> 2) >> ((place & 3) * 16).to(tl.uint64)) & 0xFFFF
    kept = lane.to(tl.int64) >= below

    # In double precision first, as torch rounds a number of Python.
    scale = (tl.full((), 65536, tl.float64) / (65536 - below).to(tl.float64)).to(x.dtype.element_ty)
    value = tl.load(x + row * width + column, mask=inside, other=0)
    tl.store(out + row * width + column, tl.where(kept, value * scale, 0), mask=inside)


def mask_vertices(x: Tensor, vertices: Tensor, base: int, below: int, first: int) -> Tensor:
    """Do the same as in dropout.py, in float32 or float64; `base` is the int64 with the bits of its word."""
    out, (rows, width) = x.new_empty(x.shape), x.shape
    if out.numel():
        grid = triton.cdiv(rows, _ROWS), triton.cdiv(width, _COLUMNS)
        operands = x.contiguous(), vertices.contiguous(), out, base, below, first, rows, width
        launch(_mask, grid, *operands, ROWS=_ROWS, COLUMNS=_COLUMNS)
    return out
