"""Draws of node_wise.py and with_replacement.py in one Triton kernel a hop, bit-identical, where torch takes a hundred.

Imported only if Triton is available (nn/kernels/triton_choice.py).
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from leapmpi.device.device_frontier import Destinations
from leapmpi.device.lists import starts
from leapmpi.nn.kernels.triton_choice import launch
from leapmpi.nn.kernels.words_triton import fold

MOST_DRAWN = 64
"""Largest supported fan-out: a table of so many columns is in registers."""

_TABLE = 1024
"""Number of elements of the table of one program."""


@triton.jit
def _column(table, number, draw):
    return tl.sum(tl.where(draw == number, table, 0), axis=1)[:, None]


@triton.jit(do_not_specialize=["hashed", "rows"])
def _draw(
    hashed, original, start, degree, indptr, out, rows,
    FANOUT: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[:, None]
    draw = tl.arange(0, WIDTH)[None, :]
    known = tl.load(degree + row, mask=row < rows, other=0)
    count = tl.minimum(known, FANOUT)

    # Draw j is below first + j + 1. Short lists draw nothing; their words are not used.
    name = tl.load(original + row, mask=row < rows, other=0)
    first = known - FANOUT
    words = fold(fold(hashed.to(tl.uint64), name), draw)
    drawn = tl.umulhi(words, tl.maximum(first + draw + 1, 1).to(tl.uint64)).to(tl.int64)

    # Replace a repeated position by the last one allowed (Floyd's algorithm).
    chosen = tl.full((BLOCK, WIDTH), -1, tl.int64)
    for number in range(FANOUT):
        mine = _column(drawn, number, draw)
        taken = tl.max((chosen == mine).to(tl.int32), axis=1)[:, None] > 0
        chosen = tl.where(draw == number, tl.where(taken, first + number, mine), chosen)
    chosen = tl.where(known <= FANOUT, draw.to(tl.int64), chosen)

    # Write each to its position in ascending order.
    place = tl.zeros((BLOCK, WIDTH), tl.int64)
    for number in range(FANOUT):
        place += ((_column(chosen, number, draw) < chosen) & (number < count)).to(tl.int64)
    valid = (draw < count) & (row < rows)
    begin = tl.load(start + row, mask=row < rows, other=0)
    tl.store(out + tl.load(indptr + row, mask=row < rows, other=0) + place, begin + chosen, mask=valid)


@triton.jit(do_not_specialize=["hashed", "rows"])
def _draw_again(
    hashed, original, start, degree, indptr, out, rows,
    FANOUT: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[:, None]
    draw = tl.arange(0, WIDTH)[None, :]
    known = tl.load(degree + row, mask=row < rows, other=0)
    name = tl.load(original + row, mask=row < rows, other=0)
    words = fold(fold(hashed.to(tl.uint64), name), draw)
    drawn = tl.umulhi(words, tl.maximum(known + draw * 0, 1).to(tl.uint64)).to(tl.int64)

    # Write each to its position in ascending order.
    place = tl.zeros((BLOCK, WIDTH), tl.int64)
    for number in range(FANOUT):
        mine = _column(drawn, number, draw)
        place += ((mine < drawn) | ((mine == drawn) & (number < draw))).to(tl.int64)
    valid = (draw < FANOUT) & (known > 0) & (row < rows)
    begin = tl.load(start + row, mask=row < rows, other=0)
    tl.store(out + tl.load(indptr + row, mask=row < rows, other=0) + place, begin + drawn, mask=valid)


def node_wise(hashed: int, to: Destinations, fanout: int) -> tuple[Tensor, Tensor]:
    """Return the first edge of each destination (int64[n + 1]) and the places; 0 < fan-out <= MOST_DRAWN."""
    return _drawn(_draw, hashed, to, starts(to.degree.clamp(max=fanout)), fanout)


def with_replacement(hashed: int, to: Destinations, fanout: int) -> tuple[Tensor, Tensor]:
    """Return what `node_wise` returns, of independent draws, as with_replacement.py draws."""
    return _drawn(_draw_again, hashed, to, starts((to.degree > 0) * fanout), fanout)


def _drawn(
    kernel: triton.JITFunction, hashed: int, to: Destinations, indptr: Tensor, fanout: int
) -> tuple[Tensor, Tensor]:
    """Return `indptr` and the places that `kernel` draws."""
    out = to.start.new_empty(int(indptr[-1]))
    if len(out):
        width = triton.next_power_of_2(fanout)
        block = max(1, _TABLE // width)
        operands = to.original, to.start, to.degree, indptr, out, len(to.degree)
        grid = (triton.cdiv(len(to.degree), block),)
        launch(kernel, grid, hashed, *operands, FANOUT=fanout, WIDTH=width, BLOCK=block)
    return indptr, out
