"""Products of tall matrices, by tiles of single-precision sums that are held in vector registers.

Tiles of 6 x 16 sums fit the 16 registers of AVX2, 12 x 32 and 8 x 48 the 32 longer ones of AVX-512 (Goto, van de Geijn:
"Anatomy of high-performance matrix multiplication", TOMS 34(3), 2008). Rows are given by their addresses and read in
place. They are prefetched: rows of features come from memory and are read once, and waiting for them would take longer
than their products. Rows in fewer bytes are converted a few at a time, and multiplied while they are in cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from leapmpi.nn.kernels.row_types import RowType, decoder
from leapmpi.nn.kernels.simd import COLUMNS, FLOAT, INDEX, VECTOR, add_product, load, pointer, prefetch
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import share_rows, threads

_LONG = bool(binding.get_host_cpu_features().get("avx512f"))

ROWS, _WIDE = (12, 2 * COLUMNS) if _LONG else (6, COLUMNS)
"""Height and width of a tile of `products`. Where fewer columns are left, a tile is one vector wide."""

OUTER_ROWS, _OUTER_WIDE = (8, 3 * COLUMNS) if _LONG else (6, COLUMNS)
"""Height and width of a tile of `sum_of_outer`, likewise."""

_LEAST_TILES, _LEAST_VECTORS = 8, 3
"""Fewer tiles of `products`, or vectors of `sum_of_outer`, are not worth another thread."""

_AT_ONCE = 1 << 27
"""Multiply-adds of `sum_of_outer` between two checks for messages: some milliseconds."""

_CACHED = 28_800
"""Elements of the rows that `sum_of_outer` reads at once, so that they and the next ones stay in cache."""


def _outer_tile(vectors: int) -> Any:
    """Make a function of a tile that is so many vectors wide, for compiled code.

    out[i, :] += sum over r < rows of g[r, i] * x[r][:], for OUTER_ROWS rows of out. x and ahead: addresses of
    int64[rows], the addresses of rows, those of the next block in `ahead`; `offset` is added to them. g and out are
    given by the addresses of their first elements and by steps in bytes. All are int64.
    """

    def generate(context, build, signature, arguments):
        x, ahead, offset, g, g_step, out, out_step, rows = arguments
        # The sums of the tile: LLVM keeps these stack slots in registers.
        places = [_vectors_of(build, vectors, out, out_step, INDEX(i)) for i in range(OUTER_ROWS)]
        sums = [[cgutils.alloca_once_value(build, build.load(at, align=4)) for at in each] for each in places]

        # A row of x, times each element of the row of g.
        with cgutils.for_range(build, rows) as loop:
            first = build.add(offset, load(build, x, INDEX(8), loop.index, INDEX))
            later = build.add(offset, load(build, ahead, INDEX(8), loop.index, INDEX))
            row = [load(build, first, INDEX(4 * COLUMNS), INDEX(v), VECTOR) for v in range(vectors)]
            for v in range(vectors):
                prefetch(build, build.add(later, INDEX(4 * COLUMNS * v)))
            factors = build.add(g, build.mul(g_step, loop.index))
            for i, totals in enumerate(sums):
                _add_products(build, totals, load(build, factors, INDEX(4), INDEX(i), FLOAT), row)

        _store(build, sums, places)
        return context.get_dummy_value()

    @intrinsic
    def add_outer(typing_context, x, ahead, offset, g, g_step, out, out_step, rows):
        return types.void(*(types.int64,) * 8), generate

    return add_outer


def _inner_tile(vectors: int) -> Any:
    """Make a function of a tile that is so many vectors wide, for compiled code.

    out[i, :] = sum over k < width of x[i][k] * weight[:, k, :], for ROWS rows of x. x and ahead: addresses of
    int64[ROWS], the addresses of rows, those of the next tile in `ahead`, whose elements have `size` bytes. weight,
    which is contiguous, a slice for each vector, and out are given by the addresses of their first elements, out also
    by a step in bytes. All are int64.
    """

    def generate(context, build, signature, arguments):
        x, ahead, size, weight, out, out_step, width = arguments
        # The addresses of the rows, of the next ones, of the slices of weight, and the sums of the tile, zero at first.
        rows = [load(build, x, INDEX(8), INDEX(i), INDEX) for i in range(ROWS)]
        later = [load(build, ahead, INDEX(8), INDEX(i), INDEX) for i in range(ROWS)]
        line_of_weight = INDEX(4 * COLUMNS)
        slices = [build.add(weight, build.mul(build.mul(line_of_weight, INDEX(v)), width)) for v in range(vectors)]
        zero = ir.Constant(VECTOR, [0.0] * COLUMNS)
        sums = [[cgutils.alloca_once_value(build, zero) for _ in slices] for _ in rows]

        def add(k):
            row = [load(build, each, line_of_weight, k, VECTOR) for each in slices]
            for each, totals in zip(rows, sums, strict=True):
                _add_products(build, totals, load(build, each, INDEX(4), k, FLOAT), row)

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

        _store(build, sums, [_vectors_of(build, vectors, out, out_step, INDEX(i)) for i in range(ROWS)])
        return context.get_dummy_value()

    @intrinsic
    def set_inner(typing_context, x, ahead, size, weight, out, out_step, width):
        return types.void(*(types.int64,) * 7), generate

    return set_inner


def _vectors_of(build, vectors, base, step, row):
    """Make pointers to the first vectors of a row of an array at address `base`, whose rows are `step` bytes apart."""
    return [pointer(build, build.add(base, INDEX(4 * COLUMNS * v)), step, row, VECTOR) for v in range(vectors)]


def _add_products(build, totals, factor, row):
    """Add factor times a row's vectors to `totals`, the stack slots of their sums."""
    for total, vector in zip(totals, row, strict=True):
        add_product(build, total, factor, vector)


def _store(build, sums, places):
    """Store the sums of a tile, which are in stack slots, at `places`, which are pointers."""
    for totals, targets in zip(sums, places, strict=True):
        for total, target in zip(totals, targets, strict=True):
            build.store(build.load(total), target, align=4)


_add_outer, _add_wide_outer = _outer_tile(1), _outer_tile(_OUTER_WIDE // COLUMNS)
_set_inner, _set_wide_inner = _inner_tile(1), _inner_tile(_WIDE // COLUMNS)


@compiled
def add_columns(addresses, begin, ahead, g, out, last, first, end, origin):
    """Compute out[:, first:end] += g^T x for the rows of x from `begin` on. The rows from `ahead` on are prefetched.

    `addresses` are those of the elements for column `origin` of out. Columns that fill no vector are the last of one
    that overlaps the one before: it is added to `last`, float32[height, 16].
    """
    height, width, count = len(out), out.shape[1], len(g)
    rows_at, out_at = np.int64(addresses.ctypes.data) + 8 * begin, np.int64(out.ctypes.data)
    later_at = np.int64(addresses.ctypes.data) + 8 * ahead
    g_at, last_at = np.int64(g.ctypes.data), np.int64(last.ctypes.data)

    # Wide tiles first, then single vectors. The last vector may overlap the one before; its sums go to `last`, lest
    # shared columns be added twice.
    wide = first + (end - first) // _OUTER_WIDE * _OUTER_WIDE
    whole = first + (end - first) // COLUMNS * COLUMNS
    step = 4 * width
    for f in range(first, wide, _OUTER_WIDE):
        offset = 4 * (f - origin)
        for h in range(0, height, OUTER_ROWS):
            place = out_at + 4 * (h * width + f)
            _add_wide_outer(rows_at, later_at, offset, g_at + 4 * h, 4 * height, place, step, count)
    for f in range(wide, end, COLUMNS):
        offset, place = 4 * (f - origin), out_at + 4 * f
        if f == whole:
            offset, place, step = 4 * (end - COLUMNS - origin), last_at, 4 * COLUMNS
        for h in range(0, height, OUTER_ROWS):
            _add_outer(rows_at, later_at, offset, g_at + 4 * h, 4 * height, place + step * h, step, count)


@compiled
def _add_last(out, last, end, rest):
    """Add the last `rest` columns of `last` to the columns of out before `end`.

    By loops, since sums of slices take seconds to compile.
    """
    for h in range(len(out)):
        for i in range(1, rest + 1):
            out[h, end - i] += last[h, COLUMNS - i]


@compiled
def _columns_of(first, end, width):
    """Return the columns of vectors `first` to `end` (exclusive) of `width`; the last vector has the remaining ones."""
    return COLUMNS * first, width if end == width // COLUMNS else COLUMNS * end


@compiled
def _add_vectors(first_vector, end_vector, g, addresses, out):
    """Add vectors `first_vector` to `end_vector` (exclusive) of the columns of `sum_of_outer`."""
    count, width = len(addresses), out.shape[1]
    block = max(COLUMNS, _CACHED // width)
    first, end = _columns_of(first_vector, end_vector, width)
    last = np.zeros((len(out), COLUMNS), np.float32)
    for begin in range(0, count, block):
        ahead = begin + block if begin + 2 * block <= count else begin
        add_columns(addresses, begin, ahead, g[begin : begin + block], out, last, first, end, 0)
    _add_last(out, last, end, (end - first) % COLUMNS)


def sum_of_outer(g: np.ndarray, addresses: np.ndarray, out: np.ndarray) -> None:
    """Compute out += g^T x for float32 g[n, h] and out[h, in], and x given by int64 addresses[n].

    `in` is at least 16 and h a multiple of OUTER_ROWS. All are C-contiguous. Threads share the columns of x. Each
    element is summed in the order of rows.
    """
    for rows in _ranges(g, out):
        _share_vectors(_add_vectors, out, g[rows], addresses[rows], out)


def _ranges(g: np.ndarray, out: np.ndarray) -> Iterator[slice]:
    """Cut rows into consecutive ranges, whose length depends on shapes alone, as sums do."""
    size = max(COLUMNS, _AT_ONCE // out.size)
    return (slice(first, first + size) for first in range(0, len(g), size))


def _share_vectors(kernel: Callable[..., None], out: np.ndarray, *arguments: object) -> None:
    """Run `kernel` for all vectors of the columns of `out`, shared by the threads. One alone reads whole rows."""
    vectors = out.shape[1] // COLUMNS
    share_rows(kernel, vectors, *arguments, least=vectors if threads() == 1 else _LEAST_VECTORS)


@compiled
def set_row_of_tiles(x, ahead, size, weight, out, height, width):
    """Compute all tiles of ROWS rows, as `_set_inner`; out has `height` columns. The first prefetches rows `ahead`."""
    for h in range(0, height // _WIDE * _WIDE, _WIDE):
        later, bytes_each = (x, 4) if h else (ahead, size)
        _set_wide_inner(x, later, bytes_each, weight + 4 * h * width, out + 4 * h, 4 * height, width)
    for h in range(height // _WIDE * _WIDE, height, COLUMNS):
        later, bytes_each = (x, 4) if h else (ahead, size)
        _set_inner(x, later, bytes_each, weight + 4 * h * width, out + 4 * h, 4 * height, width)


@compiled
def _set_products(first, end, addresses, weight, out):
    """Compute tiles `first` to `end` (exclusive) of `products`."""
    height, width = out.shape[1], weight.shape[1]
    x_at, weight_at = np.int64(addresses.ctypes.data), np.int64(weight.ctypes.data)
    out_at = np.int64(out.ctypes.data)
    for tile in range(first, end):
        later_at = x_at + 8 * ROWS * min(tile + 1, len(out) // ROWS - 1)
        set_row_of_tiles(
            x_at + 8 * ROWS * tile, later_at, 4, weight_at, out_at + 4 * tile * ROWS * height, height, width
        )


def products(addresses: np.ndarray, weight: np.ndarray, out: np.ndarray) -> None:
    """Compute out[i] = x[i] weight for float32 weight[k, in, 16] and out[n, 16 k], and x given by int64 addresses[n].

    All are C-contiguous, and n is a multiple of ROWS, not 0. Slice k of weight gives 16 columns of out. Threads share
    the rows. Each element is summed in the order of columns.
    """
    share_rows(_set_products, len(out) // ROWS, addresses, weight, out, least=_LEAST_TILES)


@functools.cache
def sum_of_outer_of(kind: RowType) -> Callable[..., None]:
    """Make `sum_of_outer` for rows of `kind`: a function (g, addresses, scale, out); scale float32[2, in]."""
    decode, kind_size = decoder(kind), kind.size

    @compiled
    def add_block(addresses, begin, ahead, g, scale, buffer, places, out, last, first):
        # The columns from `first` on of some rows, as float32; then the sums of them.
        width = buffer.shape[1]
        buffer_at, step = np.int64(buffer.ctypes.data), np.int64(scale.ctypes.data) + 4 * first
        for r in range(len(g)):
            places[r] = buffer_at + 4 * r * width
            row, later = addresses[begin + r], addresses[min(ahead + r, len(addresses) - 1)]
            offset = kind_size * first
            decode(row + offset, later + offset, step, step + 4 * scale.shape[1], places[r], width)
        add_columns(places, 0, 0, g, out, last, first, first + width, first)

    @compiled
    def add_vectors(first_vector, end_vector, g, addresses, scale, out):
        count, width = len(addresses), out.shape[1]
        block = max(COLUMNS, _CACHED // width)
        first, end = _columns_of(first_vector, end_vector, width)
        last = np.zeros((len(out), COLUMNS), np.float32)
        buffer, places = np.empty((block, end - first), np.float32), np.empty(block, np.int64)
        for begin in range(0, count if first < end else 0, block):
            rows = g[begin : min(begin + block, count)]
            add_block(addresses, begin, begin + block, rows, scale, buffer, places, out, last, first)
        _add_last(out, last, end, (end - first) % COLUMNS)

    def sum_of_outer(g: np.ndarray, addresses: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
        for rows in _ranges(g, out):
            _share_vectors(add_vectors, out, g[rows], addresses[rows], scale, out)

    return sum_of_outer


@functools.cache
def products_of(kind: RowType) -> Callable[..., None]:
    """Make `products` for rows of `kind`: a function (addresses, weight, scale, out); scale float32[2, in]."""
    decode, size = decoder(kind, ahead=False), kind.size

    @compiled
    def set_tile(addresses, tile, weight, scale, buffer, places, out):
        # A tile's rows are converted to float32 first. The first of its products prefetches the next rows.
        height, width = out.shape[1], weight.shape[1]
        buffer_at, step = np.int64(buffer.ctypes.data), np.int64(scale.ctypes.data)
        for r in range(ROWS):
            places[r] = buffer_at + 4 * r * width
            row = addresses[ROWS * tile + r]
            decode(row, row, step, step + 4 * scale.shape[1], places[r], width)
        # The tile reads rows by their addresses, whether they were converted or not.
        places_at, weight_at = np.int64(places.ctypes.data), np.int64(weight.ctypes.data)
        out_at = np.int64(out.ctypes.data) + 4 * tile * ROWS * height
        ahead = np.int64(addresses.ctypes.data) + 8 * ROWS * min(tile + 1, len(out) // ROWS - 1)
        set_row_of_tiles(places_at, ahead, size, weight_at, out_at, height, width)

    @compiled
    def set_tiles(first, end, addresses, weight, scale, out):
        buffer, places = np.empty((ROWS, weight.shape[1]), np.float32), np.empty(ROWS, np.int64)
        for tile in range(first, end):
            set_tile(addresses, tile, weight, scale, buffer, places, out)

    def products(addresses: np.ndarray, weight: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
        share_rows(set_tiles, len(out) // ROWS, addresses, weight, scale, out, least=_LEAST_TILES)

    return products
