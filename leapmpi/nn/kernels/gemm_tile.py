"""Products of tall matrices, by tiles of 6 x 16 single-precision sums that are held in vector registers.

The tiles fit the 16 registers of AVX2 (Goto, van de Geijn: "Anatomy of high-performance matrix multiplication",
TOMS 34(3), 2008). Rows are given by their addresses and read in place. They are prefetched: rows of features come from
memory and are read once, and waiting for them would take longer than their products. Rows in fewer bytes are converted
a few at a time, and multiplied while they are in cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from leapmpi.nn.kernels.row_types import RowType, decoder
from leapmpi.nn.kernels.simd import COLUMNS, FLOAT, INDEX, VECTOR, add_product, load, pointer, prefetch
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import share_rows

ROWS = 6
"""Height of a tile: 6 x 2 registers hold its sums, and 4 are left for operands."""

_LEAST_TILES = 8
"""Fewer tiles are not worth another thread."""

_CACHED = 28_800
"""Elements of the rows that `sum_of_outer` reads at once, so that they and the next ones stay in cache."""


@intrinsic
def _add_outer(typing_context, x, ahead, offset, g, g_step, out, out_step, rows):
    """out[i, :] += sum over r < rows of x[r][i] * g[r, :], for 6 elements i of x's rows and 16 columns of g and out.

    x and ahead: addresses of int64[rows], the addresses of rows, those of the next block in `ahead`; `offset` is added
    to them. g and out are given by the addresses of their first elements and by steps in bytes. All are int64.
    """

    def generate(context, build, signature, arguments):
        x, ahead, offset, g, g_step, out, out_step, rows = arguments
        # The sums of the tile: LLVM keeps these stack slots in registers.
        places = [pointer(build, out, out_step, INDEX(i), VECTOR) for i in range(ROWS)]
        sums = [cgutils.alloca_once_value(build, build.load(place, align=4)) for place in places]

        # One row of g, times each of the 6 elements of the row of x.
        with cgutils.for_range(build, rows) as loop:
            row = load(build, g, g_step, loop.index, VECTOR)
            first = build.add(offset, load(build, x, INDEX(8), loop.index, INDEX))
            prefetch(build, build.add(offset, load(build, ahead, INDEX(8), loop.index, INDEX)))
            for i, total in enumerate(sums):
                add_product(build, total, load(build, first, INDEX(4), INDEX(i), FLOAT), row)

        for place, total in zip(places, sums, strict=True):
            build.store(build.load(total), place, align=4)
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 8), generate


@intrinsic
def _set_inner(typing_context, x, ahead, size, weight, out, out_step, width):
    """out[i, :] = sum over k < width of x[i][k] * weight[k, :], for 6 rows of x and 16 columns of weight and out.

    x and ahead: addresses of int64[6], the addresses of rows, those of the next tile in `ahead`, whose
    elements have `size` bytes. weight, which is
    contiguous, and out are given by the addresses of their first elements, out also by a step in bytes. All are int64.
    """

    def generate(context, build, signature, arguments):
        x, ahead, size, weight, out, out_step, width = arguments
        # The addresses of the 6 rows, of the next 6, and the sums of the tile, which start at zero.
        rows = [load(build, x, INDEX(8), INDEX(i), INDEX) for i in range(ROWS)]
        later = [load(build, ahead, INDEX(8), INDEX(i), INDEX) for i in range(ROWS)]
        sums = [cgutils.alloca_once_value(build, ir.Constant(VECTOR, [0.0] * COLUMNS)) for _ in range(ROWS)]

        def add(k):
            row = load(build, weight, INDEX(4 * COLUMNS), k, VECTOR)
            for each, total in zip(rows, sums, strict=True):
                add_product(build, total, load(build, each, INDEX(4), k, FLOAT), row)

        # Cache line by cache line of the rows, while the same lines of the next rows are prefetched.
        lines = build.udiv(width, INDEX(COLUMNS))
        with cgutils.for_range(build, lines) as line:
            first = build.mul(line.index, INDEX(COLUMNS))
            for each in later:
                prefetch(build, build.add(each, build.mul(first, size)))
            with cgutils.for_range(build, INDEX(COLUMNS)) as loop:
                add(build.add(first, loop.index))

        # The columns of the last line, which is not whole.
        done = build.mul(lines, INDEX(COLUMNS))
        with cgutils.for_range(build, build.sub(width, done)) as loop:
            add(build.add(done, loop.index))

        for i, total in enumerate(sums):
            build.store(build.load(total), pointer(build, out, out_step, INDEX(i), VECTOR), align=4)
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 7), generate


@compiled
def _add_columns(addresses, begin, ahead, count, g, out, offset):
    """out += x^T g over `count` rows from `begin` on, for the len(out) columns of x from `offset` (bytes) on.

    The rows from `ahead` on are prefetched.
    """
    height = g.shape[1]
    x_at, g_at, out_at = np.int64(addresses.ctypes.data), np.int64(g.ctypes.data), np.int64(out.ctypes.data)
    for f in range(0, len(out), ROWS):
        for h in range(0, height, COLUMNS):
            _add_outer(
                x_at + 8 * begin, x_at + 8 * ahead, offset + 4 * f,
                g_at + 4 * (begin * height + h), 4 * height,
                out_at + 4 * (f * height + h), 4 * height, count,
            )  # fmt: skip


@compiled
def _add_last(out, last, rest):
    """Add the last `rest` rows of `last` to those of `out`: by loops, since sums of slices take seconds to compile."""
    for i in range(1, rest + 1):
        for h in range(out.shape[1]):
            out[len(out) - i, h] += last[len(last) - i, h]


@compiled
def _sum_tiles_of_outer(first, end, g, addresses, out):
    """Tiles `first` to `end` (exclusive) of `sum_of_outer`."""
    count, width = len(addresses), len(out)
    block = max(COLUMNS, _CACHED // width)

    # Columns that fill no tile are the last of a tile that overlaps the one before, whose other sums are not used.
    rest = width % ROWS if end == width // ROWS else 0
    last = np.zeros((ROWS, g.shape[1]), np.float32)

    # All rows, block by block.
    for begin in range(0, count, block):
        here = min(block, count - begin)
        ahead = begin + block if begin + 2 * block <= count else begin
        _add_columns(addresses, begin, ahead, here, g, out[ROWS * first : ROWS * end], 4 * ROWS * first)
        if rest:
            _add_columns(addresses, begin, begin, here, g, last, 4 * (width - ROWS))
    _add_last(out, last, rest)


def sum_of_outer(g: np.ndarray, addresses: np.ndarray, out: np.ndarray) -> None:
    """out += x^T g for float32 g[n, 16 k] and out[in, 16 k], `in` at least 6, and x given by int64 addresses[n].

    All are C-contiguous. Threads share the columns of x. Each element is summed in the order of rows.
    """
    share_rows(_sum_tiles_of_outer, len(out) // ROWS, g, addresses, out, least=_LEAST_TILES)


@compiled
def _set_products(first, end, addresses, weight, out):
    """Tiles `first` to `end` (exclusive) of `products`."""
    height, width = out.shape[1], weight.shape[1]
    x_at, weight_at = np.int64(addresses.ctypes.data), np.int64(weight.ctypes.data)
    out_at = np.int64(out.ctypes.data)
    for tile in range(first, end):
        ahead = min(tile + 1, len(out) // ROWS - 1)
        for h in range(0, height, COLUMNS):
            _set_inner(
                x_at + 8 * ROWS * tile, x_at + 8 * ROWS * ahead, 4, weight_at + 4 * h * width,
                out_at + 4 * (tile * ROWS * height + h), 4 * height, width,
            )  # fmt: skip


def products(addresses: np.ndarray, weight: np.ndarray, out: np.ndarray) -> None:
    """out[i] = x[i] weight for float32 weight[k, in, 16] and out[n, 16 k], and x given by int64 addresses[n].

    All are C-contiguous, and n is a multiple of 6, not 0. Slice k of weight gives 16 columns of out. Threads share the
    rows. Each element is summed in the order of columns.
    """
    share_rows(_set_products, len(out) // ROWS, addresses, weight, out, least=_LEAST_TILES)


@functools.cache
def sum_of_outer_of(kind: RowType) -> Callable[..., None]:
    """As `sum_of_outer`, a function (g, addresses, scale, out) of rows of `kind`; scale float32[2, in]."""
    decode, kind_size = decoder(kind), kind.size

    @compiled
    def add_block(addresses, begin, ahead, first, g, scale, buffer, places, out):
        # The columns from `first` on of some rows, as float32; then the sums of them.
        width = buffer.shape[1]
        buffer_at, step = np.int64(buffer.ctypes.data), np.int64(scale.ctypes.data) + 4 * first
        for r in range(len(g)):
            places[r] = buffer_at + 4 * r * width
            row, later = addresses[begin + r], addresses[min(ahead + r, len(addresses) - 1)]
            offset = kind_size * first
            decode(row + offset, later + offset, step, step + 4 * scale.shape[1], places[r], width)
        whole = width // ROWS * ROWS
        _add_columns(places, 0, 0, len(g), g, out[:whole], 0)
        if whole < width:
            # Columns that fill no tile, as in `sum_of_outer`.
            last = np.zeros((ROWS, g.shape[1]), np.float32)
            _add_columns(places, 0, 0, len(g), g, last, 4 * (width - ROWS))
            _add_last(out, last, width - whole)

    @compiled
    def sum_tiles(first_tile, end_tile, g, addresses, scale, out):
        count, width = len(addresses), len(out)
        block = max(COLUMNS, _CACHED // width)
        first = ROWS * first_tile
        end = width if end_tile == width // ROWS else ROWS * end_tile
        buffer, places = np.empty((block, end - first), np.float32), np.empty(block, np.int64)
        for begin in range(0, count if first < end else 0, block):
            rows = g[begin : min(begin + block, count)]
            add_block(addresses, begin, begin + block, first, rows, scale, buffer, places, out[first:end])

    def sum_of_outer(g: np.ndarray, addresses: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
        share_rows(sum_tiles, len(out) // ROWS, g, addresses, scale, out, least=_LEAST_TILES)

    return sum_of_outer


@functools.cache
def products_of(kind: RowType) -> Callable[..., None]:
    """As `products`, a function (addresses, weight, scale, out) of rows of `kind`; scale float32[2, in]."""
    decode, size = decoder(kind, ahead=False), kind.size

    @compiled
    def set_tile(addresses, tile, weight, scale, buffer, places, out):
        # Six rows as float32; then their products, with the first of which the next six are prefetched.
        height, width = out.shape[1], weight.shape[1]
        buffer_at, step = np.int64(buffer.ctypes.data), np.int64(scale.ctypes.data)
        for r in range(ROWS):
            places[r] = buffer_at + 4 * r * width
            row = addresses[ROWS * tile + r]
            decode(row, row, step, step + 4 * scale.shape[1], places[r], width)
        places_at, weight_at = np.int64(places.ctypes.data), np.int64(weight.ctypes.data)
        out_at = np.int64(out.ctypes.data) + 4 * tile * ROWS * height
        ahead = np.int64(addresses.ctypes.data) + 8 * ROWS * min(tile + 1, len(out) // ROWS - 1)
        for h in range(0, height, COLUMNS):
            later, bytes_each = (places_at, 4) if h else (ahead, size)
            at = weight_at + 4 * h * width
            _set_inner(places_at, later, bytes_each, at, out_at + 4 * h, 4 * height, width)

    @compiled
    def set_tiles(first, end, addresses, weight, scale, out):
        buffer, places = np.empty((ROWS, weight.shape[1]), np.float32), np.empty(ROWS, np.int64)
        for tile in range(first, end):
            set_tile(addresses, tile, weight, scale, buffer, places, out)

    def products(addresses: np.ndarray, weight: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
        share_rows(set_tiles, len(out) // ROWS, addresses, weight, scale, out, least=_LEAST_TILES)

    return products
