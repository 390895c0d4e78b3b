"""Weighted sums of rows, of a matrix or given by their addresses, which are read in place.

As many columns as registers hold are summed at a time, over all edges of a destination. Meanwhile the rows of the next
edges are prefetched: rows of features come from memory, in an order that the processor cannot predict.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from leapmpi.nn.kernels.row_types import FLOAT32, NO_SCALE, RowType, load_floats, prefetch_columns
from leapmpi.nn.kernels.simd import (
    COLUMNS,
    FLOAT,
    INDEX,
    VECTOR,
    add_product,
    add_product_to,
    copy_to,
    load,
    pointer,
    prefetch,
)
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import share_rows

_WIDE = 4
"""Vectors of a row that are summed at once."""

LINE = 64
"""Bytes of a cache line."""


def _sum_of(vectors: int, kind: RowType):
    """Make an intrinsic that sums `vectors` vectors of each row of `kind`."""

    @intrinsic
    def set_sum(typing_context, rows, weight, edges, offset, step, middle, out):
        """Set out[:] to the sum over e < edges of weight[e] * rows[e][:], of the columns from `offset` (bytes) on.

        rows: address of int64[2 edges], the addresses of the rows, then of those to prefetch; weight, out, and step and
        middle of these columns, if they are scaled: addresses of float32. All are int64.
        """

        def generate(context, build, signature, arguments):
            rows, weight, edges, offset, step, middle, out = arguments
            # LLVM keeps these stack slots in registers.
            sums = [cgutils.alloca_once_value(build, ir.Constant(VECTOR, [0.0] * COLUMNS)) for _ in range(vectors)]
            all_weight = cgutils.alloca_once_value(build, FLOAT(0.0))

            with cgutils.for_range(build, edges) as loop:
                row = build.add(offset, load(build, rows, INDEX(8), loop.index, INDEX))
                later = build.add(offset, load(build, rows, INDEX(8), build.add(edges, loop.index), INDEX))
                factor = load(build, weight, INDEX(4), loop.index, FLOAT)
                for k, total in enumerate(sums):
                    prefetch_columns(build, kind, later, k)
                    add_product(build, total, factor, load_floats(build, kind, row, INDEX(COLUMNS * k)))
                if kind.scaled:
                    build.store(build.fadd(build.load(all_weight), factor), all_weight)

            for k, total in enumerate(sums):
                if kind.scaled:
                    # Sums of whole steps are scaled once; each edge adds its weight times the middle.
                    steps, middles = (
                        load(build, each, INDEX(4 * COLUMNS), INDEX(k), VECTOR) for each in (step, middle)
                    )
                    build.store(build.fmul(build.load(total), steps), total)
                    add_product(build, total, build.load(all_weight), middles)
                build.store(build.load(total), pointer(build, out, INDEX(4 * COLUMNS), INDEX(k), VECTOR), align=4)
            return context.get_dummy_value()

        return types.void(*(types.int64,) * 7), generate

    return set_sum


def _sum_rows_of(kind: RowType):
    """Make a kernel that sums the rows `first` to `end` (exclusive) of `weighted_sums`."""
    narrow, wide, size = _sum_of(1, kind), _sum_of(_WIDE, kind), kind.size

    @compiled
    def sum_rows(first, end, indptr, addresses, weight, scale, out):
        width = out.shape[1]
        # Addresses as numbers: intrinsics load vectors from them, without arrays.
        rows_at = np.int64(addresses.ctypes.data)
        weight_at = np.int64(weight.ctypes.data)
        step = np.int64(scale.ctypes.data)
        middle = step + 4 * scale.shape[1]
        out_at = np.int64(out.ctypes.data)

        for i in range(first, end):
            begin, edges = indptr[i], indptr[i + 1] - indptr[i]
            rows, weights, sums = rows_at + 8 * begin, weight_at + 4 * begin, out_at + 4 * i * width
            column = 0
            while column < width:
                if width - column >= _WIDE * COLUMNS:
                    at = 4 * column
                    wide(rows, weights, edges, size * column, step + at, middle + at, sums + at)
                    column += _WIDE * COLUMNS
                else:
                    # The last columns are those of a vector that overlaps the one before, whose sums it repeats.
                    column = min(column, width - COLUMNS)
                    at = 4 * column
                    narrow(rows, weights, edges, size * column, step + at, middle + at, sums + at)
                    column += COLUMNS

    return sum_rows


_sum_rows = _sum_rows_of(FLOAT32)


@compiled
def _locate(first, end, indices, addresses, of_edges):
    """Return the addresses of the rows of edges `first` to `end` (exclusive)."""
    for e in range(first, end):
        of_edges[e] = addresses[indices[e]]


@compiled
def locate_in_matrix(first, end, indices, base, step, of_edges):
    """Locate as `_locate` does, for rows from `base` on, `step` bytes apart."""
    for e in range(first, end):
        of_edges[e] = base + step * np.int64(indices[e])


@compiled
def _most_edges(indptr):
    """Return the most edges of a destination."""
    most = 0
    for i in range(len(indptr) - 1):
        most = max(most, indptr[i + 1] - indptr[i])
    return most


@functools.cache
def weighted_sums_of(kind: RowType) -> Callable[..., None]:
    """Make a function weighted_sums(indptr, indices, weight, addresses, scale, out) of rows of `kind`.

    out[i] = sum over edges e of destination i of weight[e] * x[indices[e]], in the order of edges.

    indptr int64[n + 1], indices int32 or int64[edges], not empty, and weight float32[edges] list the edges; x is given
    by addresses int64[sources] of rows, and scale float32[2, width] if their columns are scaled; out is float32[n,
    width], of 16 columns or more. All are C-contiguous. Threads share the destinations.
    """
    sum_rows = _sum_rows if kind == FLOAT32 else _sum_rows_of(kind)

    def weighted_sums(
        indptr: np.ndarray,
        indices: np.ndarray,
        weight: np.ndarray,
        addresses: np.ndarray,
        scale: np.ndarray,
        out: np.ndarray,
    ) -> None:
        # Edges are followed once for all columns, so that the sums read addresses in order.
        of_edges = _room_for_addresses(indptr, indices, addresses[indices[-1]])
        share_rows(_locate, len(indices), indices, addresses, of_edges)
        share_rows(sum_rows, len(out), indptr, of_edges, weight, scale, out)

    return weighted_sums


def weighted_sums_of_matrix(
    indptr: np.ndarray, indices: np.ndarray, weight: np.ndarray, x: np.ndarray, out: np.ndarray
) -> None:
    """Sum as functions of `weighted_sums_of` do, for x float32[sources, width], C-contiguous, maybe read-only."""
    base, step = x.ctypes.data, 4 * x.shape[1]
    of_edges = _room_for_addresses(indptr, indices, base + step * int(indices[-1]))
    share_rows(locate_in_matrix, len(indices), indices, base, step, of_edges)
    share_rows(_sum_rows, len(out), indptr, of_edges, weight, NO_SCALE, out)


def _room_for_addresses(indptr: np.ndarray, indices: np.ndarray, last: int) -> np.ndarray:
    """Allocate int64 room for the address of each edge's row, followed by the `last` one, repeated.

    Destinations prefetch as many addresses behind theirs.
    """
    room = np.empty(len(indices) + _most_edges(indptr), np.int64)
    room[len(indices) :] = last
    return room


def _row_step(step: Callable[..., None]) -> Any:
    """Make a function that applies `step` to a row, vector by vector, then number by number."""

    def generate(context, build, signature, arguments):
        to, row, *factor, columns = arguments
        vectors = build.sdiv(columns, INDEX(COLUMNS))
        with cgutils.for_range(build, vectors) as loop:
            step(build, to, *factor, row, build.mul(loop.index, INDEX(COLUMNS)), VECTOR)
        done = build.mul(vectors, INDEX(COLUMNS))
        with cgutils.for_range(build, build.sub(columns, done)) as loop:
            step(build, to, *factor, row, build.add(done, loop.index), FLOAT)
        return context.get_dummy_value()

    return generate


@intrinsic
def add_row(typing_context, to, row, factor, columns):
    """Compute to[:columns] += factor * row[:columns]; `to` and `row` are addresses (int64) of float32."""
    return types.void(types.int64, types.int64, types.float32, types.int64), _row_step(add_product_to)


_AHEAD = 8
"""Rows between the one that is added to and the one that is prefetched."""


@compiled
def _add_vectors(out, positions, rows):
    """Compute `add_rows` of float32."""
    width = rows.shape[1]
    out_at, rows_at = np.int64(out.ctypes.data), np.int64(rows.ctypes.data)
    for k in range(len(rows)):
        prefetch_row(out_at + 4 * width * positions[min(k + _AHEAD, len(rows) - 1)], 4 * width)
        add_row(out_at + 4 * width * positions[k], rows_at + 4 * width * k, np.float32(1), width)


@compiled
def _add_numbers(out, positions, rows):
    """Compute `add_rows` of any types."""
    for k in range(len(rows)):
        for f in range(rows.shape[1]):
            out[positions[k], f] += rows[k, f]


def add_rows(out: np.ndarray, positions: np.ndarray, rows: np.ndarray) -> None:
    """Add row k of `rows` to row positions[k] (int64, which may repeat) of `out`, in their order.

    All are C-contiguous; the types of `rows` and `out` may differ.
    """
    # Vectors are read by address, so both must be of their type.
    (_add_vectors if out.dtype == rows.dtype == np.float32 else _add_numbers)(out, positions, rows)


@intrinsic
def copy_row(typing_context, to, row, columns):
    """Compute to[:columns] = row[:columns]; `to` and `row` are addresses (int64) of float32."""
    return types.void(types.int64, types.int64, types.int64), _row_step(copy_to)


@intrinsic
def prefetch_row(typing_context, row, size):
    """Prefetch `size` bytes from the address `row` on (int64)."""

    def generate(context, build, signature, arguments):
        row, size = arguments
        lines = build.sdiv(build.add(size, INDEX(LINE - 1)), INDEX(LINE))
        with cgutils.for_range(build, lines) as loop:
            prefetch(build, build.add(row, build.mul(loop.index, INDEX(LINE))))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate
