"""Sums over edges in Triton: rows are added up as they are read, and no matrix of edges x columns is made.

Imported only if Triton is available (triton_choice.py). Sums follow the order of edges, so they have the same bits in
every run. The gradient of the rows is the same sum over the transposed list.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from leapmpi.nn.kernels.triton_choice import launch

_MOST_COLUMNS = 256
"""Columns of a row that one program adds up."""


@triton.jit
def _weighted_sum(indptr, indices, weight, z, out, width, heads, head_width, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    head = column // head_width
    total = tl.zeros((BLOCK,), dtype=z.dtype.element_ty)
    for edge in range(tl.load(indptr + row), tl.load(indptr + row + 1)):
        source = tl.load(indices + edge).to(tl.int64)
        share = tl.load(weight + edge * heads + head, mask=inside, other=0)
        total += share * tl.load(z + source * width + column, mask=inside, other=0)
    tl.store(out + row * width + column, total, mask=inside)


def weighted_sum(indptr: Tensor, indices: Tensor, weight: Tensor, z: Tensor) -> Tensor:
    """Do the same as in csr.py, in float32 or float64."""
    rows, (width, heads) = len(indptr) - 1, (z.shape[1], weight.shape[1])
    out = z.new_empty(rows, width)
    if not out.numel():
        return out
    block = min(_MOST_COLUMNS, triton.next_power_of_2(width))
    operands = indptr, indices, weight.contiguous(), z.contiguous(), out
    grid = rows, triton.cdiv(width, block)
    launch(_weighted_sum, grid, *operands, width, heads, width // heads, BLOCK=block)
    return out
