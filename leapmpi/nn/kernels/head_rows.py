"""Sums and products of rows by edge where each head weights columns of its own, or all of them, in single precision.

Source rows hold the columns of all heads, or those of one head that all heads read. Columns of a head are a multiple of
four. As many as registers hold are summed at a time, over all edges of a destination, in their order. Meanwhile the
rows of later edges are prefetched, as they are far apart.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor

from leapmpi.nn.kernels.row_sums import LINE, add_row, locate_in_matrix, prefetch_row
from leapmpi.nn.kernels.simd import (
    COLUMNS,
    FLOAT,
    INDEX,
    VECTOR,
    add_product,
    add_products,
    load,
    pointer,
    prefetch,
    repeated,
    sum_of,
)
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import share_rows

_WIDE = 4
"""Vectors of a row that are summed at once."""

_LANES = (16, 8, 4)
"""Elements of a vector: the first of these that divides the columns of a head."""

_AHEAD = 12
"""Edges between the one whose row is read and the one whose row is prefetched."""


def serves(rows: Tensor, heads: int) -> bool:
    """Return whether these kernels serve `rows` (float[n, width]) with so many heads."""
    return rows.dtype == torch.float32 and rows.shape[1] // heads % _LANES[-1] == 0


def _sum_of_heads(vectors: int, lanes: int) -> Any:
    """Make an intrinsic that sums `vectors` vectors of rows, each weighted by the head that its columns are of."""

    @intrinsic
    def set_sum(typing_context, rows, weights, stride, edges, offset, out):
        """Set out[:] to the sum over e < edges of weight[e] * rows[e][:], of the columns from `offset` (bytes) on.

        rows: address of int64[edges + _AHEAD], addresses of rows; weights: a tuple of the addresses of each vector's
        first weight, whose next one is `stride` bytes further; out: address of float32. All are int64.
        """

        def generate(context, build, signature, arguments):
            rows, weights, stride, edges, offset, out = arguments
            kind = ir.VectorType(FLOAT, lanes)
            # LLVM keeps these stack slots in registers.
            sums = [cgutils.alloca_once_value(build, ir.Constant(kind, [0.0] * lanes)) for _ in range(vectors)]
            factors = cgutils.unpack_tuple(build, weights, vectors)

            with cgutils.for_range(build, edges) as loop:
                row = build.add(offset, load(build, rows, INDEX(8), loop.index, INDEX))
                ahead = build.add(loop.index, INDEX(_AHEAD))
                later = build.add(offset, load(build, rows, INDEX(8), ahead, INDEX))
                for k, total in enumerate(sums):
                    # One prefetch a cache line, however many vectors it holds.
                    if k * 4 * lanes % LINE == 0:
                        prefetch(build, build.add(later, INDEX(k * 4 * lanes)))
                    factor = load(build, factors[k], stride, loop.index, FLOAT)
                    add_product(build, total, factor, load(build, row, INDEX(4 * lanes), INDEX(k), kind))

            for k, total in enumerate(sums):
                at = build.add(out, INDEX(4 * lanes * k))
                build.store(build.load(total), build.inttoptr(at, kind.as_pointer()), align=4)
            return context.get_dummy_value()

        number = types.int64
        return types.void(number, types.UniTuple(number, vectors), number, number, number, number), generate

    return set_sum


@functools.cache
def _sums_of(lanes: int) -> Callable[..., None]:
    """Make a kernel that sums the rows `first` to `end` (exclusive) of `head_sums`, by vectors of `lanes` elements."""
    narrow, wide = _sum_of_heads(1, lanes), _sum_of_heads(_WIDE, lanes)

    @compiled
    def sum_heads(first, end, indptr, addresses, columns, weight, out):
        heads, vectors, of_row = weight.shape[1], out.shape[1] // lanes, columns // lanes
        # Vectors of a head, and addresses as numbers.
        each, stride = vectors // heads, 4 * heads
        rows_at, weight_at = np.int64(addresses.ctypes.data), np.int64(weight.ctypes.data)
        out_at = np.int64(out.ctypes.data)
        for i in range(first, end):
            begin, edges = indptr[i], indptr[i + 1] - indptr[i]
            rows, by, sums = rows_at + 8 * begin, weight_at + stride * begin, out_at + 4 * i * out.shape[1]
            v = 0
            while v < vectors:
                # The vector of a source row, which all heads read where it has the columns of one.
                read, to = v % of_row, sums + 4 * lanes * v
                at = 4 * lanes * read
                if of_row - read >= _WIDE:
                    a, b, c, d = v // each, (v + 1) // each, (v + 2) // each, (v + 3) // each
                    wide(rows, (by + 4 * a, by + 4 * b, by + 4 * c, by + 4 * d), stride, edges, at, to)
                    v += _WIDE
                else:
                    narrow(rows, (by + 4 * (v // each),), stride, edges, at, to)
                    v += 1

    return sum_heads


def _value_of(lanes: int, scored: bool) -> Any:
    """Make an intrinsic of two rows of `vectors` vectors: their product, or, if `scored`, their score of GATv2."""

    @intrinsic
    def value(typing_context, a, b, attend, vectors, slope):
        """Return a . b, or attend . LeakyReLU(a + b), of float32 at these addresses (int64).

        slope: float32, of the rectifier below zero.
        """

        def generate(context, build, signature, arguments):
            *rows, attend, vectors, slope = arguments
            kind = ir.VectorType(FLOAT, lanes)
            zero = ir.Constant(kind, [0.0] * lanes)
            total = cgutils.alloca_once_value(build, zero)
            build.store(zero, total)
            with cgutils.for_range(build, vectors) as loop:
                a, b = (load(build, each, INDEX(4 * lanes), loop.index, kind) for each in rows)
                if scored:
                    both = build.fadd(a, b)
                    # A choice between both branches needs no jump, so that vectors stay whole.
                    lower = build.fmul(both, repeated(build, slope, lanes))
                    a = load(build, attend, INDEX(4 * lanes), loop.index, kind)
                    b = build.select(build.fcmp_ordered(">", both, zero), both, lower)
                add_products(build, total, a, b)
            return sum_of(build, build.load(total))

        number = types.int64
        return types.float32(number, number, number, number, types.float32), generate

    return value


@functools.cache
def _values_of(lanes: int, scored: bool) -> Callable[..., None]:
    """Make a kernel of the values of `_value_of`, for the edges of rows `first` to `end` (exclusive)."""
    value = _value_of(lanes, scored)

    @compiled
    def set_values(first, end, indptr, addresses, columns, rows, attend, slope, out):
        heads, width = out.shape[1], rows.shape[1]
        each = width // heads
        # All heads read the same columns where source rows have those of one head.
        step = 4 * each if columns == width else 0
        rows_at, attend_at = np.int64(rows.ctypes.data), np.int64(attend.ctypes.data)
        for i in range(first, end):
            mine = rows_at + 4 * width * i
            for e in range(indptr[i], indptr[i + 1]):
                prefetch_row(addresses[e + _AHEAD], 4 * columns)
                for h in range(heads):
                    at = 4 * each * h
                    out[e, h] = value(addresses[e] + step * h, mine + at, attend_at + at, each // lanes, slope)

    return set_values


def _add_of_heads(vectors: int) -> Any:
    """Make an intrinsic that adds rows of all heads to `vectors` vectors, which stay in registers meanwhile."""

    @intrinsic
    def add_heads(typing_context, to, rows, step, weight, heads):
        """Add weight[h] * row h to the vectors at `to`, for each h < heads.

        rows: address of the first row, the next one is `step` bytes further; weight: address of float32[heads]. All
        are int64.
        """

        def generate(context, build, signature, arguments):
            to, rows, step, weight, heads = arguments
            places = [pointer(build, to, INDEX(4 * COLUMNS), INDEX(v), VECTOR) for v in range(vectors)]
            sums = [cgutils.alloca_once_value(build, build.load(place, align=4)) for place in places]
            with cgutils.for_range(build, heads) as loop:
                factor = load(build, weight, INDEX(4), loop.index, FLOAT)
                row = build.add(rows, build.mul(step, loop.index))
                for v, total in enumerate(sums):
                    add_product(build, total, factor, load(build, row, INDEX(4 * COLUMNS), INDEX(v), VECTOR))
            for place, total in zip(places, sums, strict=True):
                build.store(build.load(total), place, align=4)
            return context.get_dummy_value()

        return types.void(*(types.int64,) * 5), generate

    return add_heads


_ADD_ONE, _ADD_SOME = _add_of_heads(1), _add_of_heads(_WIDE)
_ONE, _SOME = _sum_of_heads(1, COLUMNS), _sum_of_heads(_WIDE, COLUMNS)
_PRODUCT = _value_of(COLUMNS, False)


@compiled
def prefetch_edge(addresses, e, offset, columns):
    """Prefetch the row of a later edge than `e`, `offset` bytes on; `addresses` are those of `addresses_of_edges`."""
    prefetch_row(addresses[e + _AHEAD] + offset, 4 * columns)


@compiled
def value_of_edge(row, other, columns):
    """Return the product of the rows at two addresses, of a multiple of 16 `columns`."""
    return _PRODUCT(row, other, np.int64(0), columns // COLUMNS, np.float32(0))


@compiled
def add_heads_to(to, rows, step, weight, heads, columns):
    """Add weight[h] times row h to the row at `to`, head by head; columns are a multiple of 16.

    rows: address of the first row, the next one is `step` bytes further; weight: address of float32[heads].
    """
    column = 0
    while column < columns:
        at = 4 * column
        if columns - column >= _WIDE * COLUMNS:
            _ADD_SOME(to + at, rows + at, step, weight, heads)
            column += _WIDE * COLUMNS
        else:
            _ADD_ONE(to + at, rows + at, step, weight, heads)
            column += COLUMNS


@compiled
def sum_of_edges(first, end, addresses, weight, head, columns, out):
    """Sum the rows of edges `first` to `end` (exclusive), each times weight[e, head], to `out`, an address.

    Columns are a multiple of 16; addresses are those of `addresses_of_edges`.
    """
    rows, stride = np.int64(addresses.ctypes.data) + 8 * first, 4 * weight.shape[1]
    by = np.int64(weight.ctypes.data) + stride * first + 4 * head
    column = 0
    while column < columns:
        at = 4 * column
        if columns - column >= _WIDE * COLUMNS:
            _SOME(rows, (by, by, by, by), stride, end - first, at, out + at)
            column += _WIDE * COLUMNS
        else:
            _ONE(rows, (by,), stride, end - first, at, out + at)
            column += COLUMNS


@compiled
def add_to_sources(first, end, indptr, indices, weight, g, out):
    """Compute out[indices[e]] += weight[e] * g[i], head by head, for each edge e of row i to a source in [first, end).

    indptr int64[n + 1], indices int32 or int64[edges], weight float32[edges, heads], g float32[n, width] and out
    float32[sources, columns], C-contiguous; heads may have any number of columns. A thread walks through all edges and
    adds to its own rows.
    """
    heads, width, columns, edges = weight.shape[1], g.shape[1], out.shape[1], len(indices)
    each = width // heads
    step = 4 * each if columns == width else 0
    # Heads that share columns are added while these are in registers.
    at_once = step == 0 and heads > 1 and each % COLUMNS == 0
    row_at, out_at, weight_at = np.int64(g.ctypes.data), np.int64(out.ctypes.data), np.int64(weight.ctypes.data)
    for i in range(len(g)):
        for e in range(indptr[i], indptr[i + 1]):
            # Other threads have the other sources: only own rows are fetched, and written without locks.
            later = np.int64(indices[min(e + _AHEAD, edges - 1)])
            if first <= later < end:
                prefetch_row(out_at + 4 * columns * later, 4 * columns)
            source = np.int64(indices[e])
            if first <= source < end:
                to, row = out_at + 4 * columns * source, row_at + 4 * width * i
                if at_once:
                    add_heads_to(to, row, 4 * each, weight_at + 4 * heads * e, heads, each)
                    continue
                for h in range(heads):
                    add_row(to + step * h, row + 4 * each * h, weight[e, h], each)


def head_sums(indptr: np.ndarray, indices: np.ndarray, weight: np.ndarray, z: np.ndarray, out: np.ndarray) -> None:
    """Set row i of `out`, head by head, to the sum over its edges e, in their order, of weight[e] * z[indices[e]].

    indptr int64[n + 1], indices int32 or int64[edges], weight float32[edges, heads], z float32[sources, columns] and
    out float32[n, width] are C-contiguous; columns are those of all heads, width, or of one. `serves` the columns of a
    head. Threads share the rows.
    """
    kernel = _sums_of(_lanes(out.shape[1] // weight.shape[1]))
    share_rows(kernel, len(out), indptr, addresses_of_edges(indices, z), z.shape[1], weight, out)


def head_products(indptr: np.ndarray, indices: np.ndarray, g: np.ndarray, z: np.ndarray, out: np.ndarray) -> None:
    """Set out[e], head by head, to the product of g[i] and z[indices[e]], for each edge e of row i.

    g float32[n, width], out float32[edges, heads]; the others as in `head_sums`.
    """
    kernel = _values_of(_lanes(g.shape[1] // out.shape[1]), False)
    unread = np.empty((0, 0), np.float32), np.float32(0)
    share_rows(kernel, len(indptr) - 1, indptr, addresses_of_edges(indices, z), z.shape[1], g, *unread, out)


def head_scores(
    indptr: np.ndarray, indices: np.ndarray, source: np.ndarray, target: np.ndarray, attend: np.ndarray, slope: float,
    out: np.ndarray,
) -> None:  # fmt: skip
    """Set out[e], head by head, to attend . LeakyReLU(source[indices[e]] + target[i]), for each edge e of row i.

    source float32[sources, width], target float32[n, width], attend float32[heads, columns], out float32[edges, heads];
    the others as in `head_sums`.
    """
    kernel = _values_of(_lanes(attend.shape[1]), True)
    given = target, attend, np.float32(slope)
    share_rows(kernel, len(indptr) - 1, indptr, addresses_of_edges(indices, source), source.shape[1], *given, out)


def _lanes(columns: int) -> int:
    return next(each for each in _LANES if columns % each == 0)


def addresses_of_edges(indices: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return int64[edges + _AHEAD]: the address of each edge's row of `z`, then those that are prefetched last."""
    found = np.empty(len(indices) + _AHEAD, np.int64)
    found[len(indices) :] = z.ctypes.data
    share_rows(locate_in_matrix, len(indices), indices, z.ctypes.data, 4 * z.shape[1], found)
    return found
