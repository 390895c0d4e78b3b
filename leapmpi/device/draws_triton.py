"""Draws of node_wise.py and with_replacement.py in one Triton kernel a hop, bit-identical, where torch takes a hundred.

Imported only if Triton is available (nn/kernels/triton_choice.py).
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from leapmpi.device import uniform_draws
from leapmpi.device.device_frontier import Destinations
from leapmpi.device.lists import starts
from leapmpi.nn.kernels.triton_choice import launch
from leapmpi.nn.kernels.words_triton import column, fold

MOST_DRAWN = 64
"""Largest supported fan-out: a table of so many columns is in registers."""

_TABLE = 1024
"""Number of elements of the table of one program."""


@triton.jit
def _distinct(drawn, first, draw, FANOUT: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    # Replace a repeated position by the last one allowed (Floyd's algorithm).
    chosen = tl.full((BLOCK, WIDTH), -1, tl.int64)
    for number in range(FANOUT):
        mine = column(drawn, number, draw)
        taken = tl.max((chosen == mine).to(tl.int32), axis=1)[:, None] > 0
        chosen = tl.where(draw == number, tl.where(taken, first + number, mine), chosen)
    return chosen


@triton.jit(do_not_specialize=["hashed", "rows"])
def _draw(
    hashed, original, start, degree, indptr, out, rows,
    AGAIN: tl.constexpr, FANOUT: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[:, None]
    draw = tl.arange(0, WIDTH)[None, :]
    known = tl.load(degree + row, mask=row < rows, other=0)
    name = tl.load(original + row, mask=row < rows, other=0)
    words = fold(fold(hashed.to(tl.uint64), name), draw)

    # Draw j is below first + j + 1, or with repeats below the degree. Words of lists that draw nothing are not used.
    first = known - FANOUT
    below = known + draw * 0 if AGAIN else first + draw + 1
    chosen = tl.umulhi(words, tl.maximum(below, 1).to(tl.uint64)).to(tl.int64)
    if AGAIN:
        count = tl.where(known > 0, FANOUT, 0)
    else:
        count = tl.minimum(known, FANOUT)
        distinct = _distinct(chosen, first, draw, FANOUT, BLOCK, WIDTH)
        chosen = tl.where(known <= FANOUT, draw.to(tl.int64), distinct)

    # Write each to its position in ascending order.
    place = tl.zeros((BLOCK, WIDTH), tl.int64)
    for number in range(FANOUT):
        mine = column(chosen, number, draw)
        before = (mine < chosen) | ((mine == chosen) & (number < draw))
        place += (before & (number < count)).to(tl.int64)
    valid = (draw < count) & (row < rows)
    begin = tl.load(start + row, mask=row < rows, other=0)
    tl.store(out + tl.load(indptr + row, mask=row < rows, other=0) + place, begin + chosen, mask=valid)


def node_wise(hashed: int, to: Destinations, fanout: int) -> tuple[Tensor, Tensor]:
    """Return the first edge of each destination (int64[n + 1]) and places (int64[edges]); 0 < fan-out <= MOST_DRAWN."""
    return _drawn(hashed, to, starts(to.degree.clamp(max=fanout)), fanout, again=False)


def uniform_places(hashed: int, to: Destinations, fanout: int) -> tuple[Tensor, Tensor]:
    """Return what `node_wise` returns, for any fan-out."""
    if 0 < fanout <= MOST_DRAWN:
        return node_wise(hashed, to, fanout)
    indptr, positions = uniform_draws.node_wise(hashed, to, fanout)
    return indptr, positions + to.start.repeat_interleave(indptr.diff(), output_size=len(positions))


def with_replacement(hashed: int, to: Destinations, fanout: int) -> tuple[Tensor, Tensor]:
    """Return what `node_wise` returns, of independent draws, as with_replacement.py draws."""
    return _drawn(hashed, to, starts((to.degree > 0) * fanout), fanout, again=True)


def _drawn(hashed: int, to: Destinations, indptr: Tensor, fanout: int, again: bool) -> tuple[Tensor, Tensor]:
    """Return `indptr` and the drawn places; again: with repeats."""
    out = to.start.new_empty(int(indptr[-1]))
    if len(out):
        width = triton.next_power_of_2(fanout)
        block = max(1, _TABLE // width)
        operands = to.original, to.start, to.degree, indptr, out, len(to.degree)
        grid = (triton.cdiv(len(to.degree), block),)
        launch(_draw, grid, hashed, *operands, AGAIN=again, FANOUT=fanout, WIDTH=width, BLOCK=block)
    return indptr, out
