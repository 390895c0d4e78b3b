"""Products of tall matrices, by tiles of 6 x 16 single-precision sums that are held in vector registers.

The tiles fit the 16 registers of AVX2 (Goto, van de Geijn: "Anatomy of high-performance matrix multiplication",
TOMS 34(3), 2008). Rows are read where they lie, given their addresses, and are asked for before they are wanted: rows
of features are read once, from memory, which otherwise takes longer than their products.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from leapmpi.nn.kernels.simd import COLUMNS, FLOAT, INDEX, VECTOR, add_product, ask_for, load, pointer
from leapmpi.system.jit import compiled, compiled_parallel, prange

ROWS = 6
_CACHED = 28_800
"""Elements of the rows that a sum over rows goes through at once, so that they and the next ones stay in cache."""


@intrinsic
def _add_outer(typing_context, x, ahead, offset, g, g_step, out, out_step, rows):
    """out[i, :] += sum over r < rows of x[r][i] * g[r, :], for 6 elements i of x's rows and 16 columns of g and out.

    x and ahead: addresses of int64[rows], the addresses of rows, those of the next block in `ahead`; `offset` is added
    to them. g and out are given by the addresses of their first elements and by steps in bytes. All are int64.
    """

    def generate(context, build, signature, arguments):
        x, ahead, offset, g, g_step, out, out_step, rows = arguments
        places = [pointer(build, out, out_step, INDEX(i), VECTOR) for i in range(ROWS)]
        sums = [cgutils.alloca_once_value(build, build.load(place, align=4)) for place in places]
        with cgutils.for_range(build, rows) as loop:
            row = load(build, g, g_step, loop.index, VECTOR)
            first = build.add(offset, load(build, x, INDEX(8), loop.index, INDEX))
            ask_for(build, build.add(offset, load(build, ahead, INDEX(8), loop.index, INDEX)))
            for i, total in enumerate(sums):
                add_product(build, total, load(build, first, INDEX(4), INDEX(i), FLOAT), row)
        for place, total in zip(places, sums, strict=True):
            build.store(build.load(total), place, align=4)
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 8), generate


@intrinsic
def _set_inner(typing_context, x, ahead, weight, out, out_step, width):
    """out[i, :] = sum over k < width of x[i][k] * weight[k, :], for 6 rows of x and 16 columns of weight and out.

    x and ahead: addresses of int64[6], the addresses of rows, those of the next tile in `ahead`. weight, whose rows
    follow each other, and out are given by the addresses of their first elements, out by a step in bytes too. All are
    int64.
    """

    def generate(context, build, signature, arguments):
        x, ahead, weight, out, out_step, width = arguments
        rows, later = ([load(build, each, INDEX(8), INDEX(i), INDEX) for i in range(ROWS)] for each in (x, ahead))
        sums = [cgutils.alloca_once_value(build, ir.Constant(VECTOR, [0.0] * COLUMNS)) for _ in range(ROWS)]

        def add(k):
            row = load(build, weight, INDEX(4 * COLUMNS), k, VECTOR)
            for each, total in zip(rows, sums, strict=True):
                add_product(build, total, load(build, each, INDEX(4), k, FLOAT), row)

        lines = build.udiv(width, INDEX(COLUMNS))
        with cgutils.for_range(build, lines) as line:
            first = build.mul(line.index, INDEX(COLUMNS))
            for each in later:
                ask_for(build, build.add(each, build.mul(first, INDEX(4))))
            with cgutils.for_range(build, INDEX(COLUMNS)) as loop:
                add(build.add(first, loop.index))
        done = build.mul(lines, INDEX(COLUMNS))
        with cgutils.for_range(build, build.sub(width, done)) as loop:
            add(build.add(done, loop.index))
        for i, total in enumerate(sums):
            build.store(build.load(total), pointer(build, out, out_step, INDEX(i), VECTOR), align=4)
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 6), generate


@compiled
def _add_columns(addresses, begin, ahead, count, g, out, offset):
    """The outer products of `count` rows from `begin` on, of as many columns of x from `offset` (bytes) as out has."""
    height = g.shape[1]
    x_at, g_at, out_at = np.int64(addresses.ctypes.data), np.int64(g.ctypes.data), np.int64(out.ctypes.data)
    for f in range(0, len(out), ROWS):
        for h in range(0, height, COLUMNS):
            _add_outer(
                x_at + 8 * begin, x_at + 8 * ahead, offset + 4 * f,
                g_at + 4 * (begin * height + h), 4 * height,
                out_at + 4 * (f * height + h), 4 * height, count,
            )  # fmt: skip


@compiled_parallel
def sum_of_outer(g, addresses, out, shares):
    """out += x^T g for float32 g [n, 16 k] and out [in, 16 k], `in` at least 6, and x given by int64 addresses [n].

    All are C-contiguous. The columns of x are cut into `shares` for as many threads. Each element is summed in the
    order of rows.
    """
    count, width = len(addresses), len(out)
    block = max(COLUMNS, _CACHED // width)
    tiles = width // ROWS
    rest = width - tiles * ROWS
    # The last columns are those of a tile that overlaps the one before.
    last = np.zeros((ROWS, g.shape[1]), np.float32)
    for share in prange(shares):
        first, end = ROWS * (tiles * share // shares), ROWS * (tiles * (share + 1) // shares)
        for begin in range(0, count, block):
            here = min(block, count - begin)
            ahead = begin + block if begin + 2 * block <= count else begin
            _add_columns(addresses, begin, ahead, here, g, out[first:end], 4 * first)
            if rest and share == shares - 1:
                _add_columns(addresses, begin, begin, here, g, last, 4 * (width - ROWS))
    out[width - rest :] += last[ROWS - rest :]


@compiled
def _set_products(addresses, first, end, weight, out):
    """Tiles `first` to `end` (exclusive) of `products`, of rows at these addresses."""
    height, width = out.shape[1], weight.shape[1]
    x_at, weight_at = np.int64(addresses.ctypes.data), np.int64(weight.ctypes.data)
    out_at = np.int64(out.ctypes.data)
    for tile in range(first, end):
        ahead = min(tile + 1, len(out) // ROWS - 1)
        for h in range(0, height, COLUMNS):
            _set_inner(
                x_at + 8 * ROWS * tile, x_at + 8 * ROWS * ahead, weight_at + 4 * h * width,
                out_at + 4 * (tile * ROWS * height + h), 4 * height, width,
            )  # fmt: skip


@compiled_parallel
def products(addresses, weight, out, shares):
    """out[i] = x[i] weight for float32 weight [k, in, 16] and out [n, 16 k], and x given by int64 addresses [n].

    All are C-contiguous, and n is a multiple of 6, not 0. Slice k of weight gives 16 columns of out. The rows are cut
    into `shares` for as many threads. Each element is summed in the order of columns.
    """
    # The arrays are passed on whole: numba frees one whose address alone is still used.
    tiles = len(out) // ROWS
    for share in prange(shares):
        _set_products(addresses, tiles * share // shares, tiles * (share + 1) // shares, weight, out)
