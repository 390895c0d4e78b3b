"""Weighted sums of single-precision rows, of a matrix or given by their addresses, which are read in place.

As many columns as registers hold are summed at a time, over all edges of a destination. Meanwhile the rows of the next
edges are prefetched: rows of features come from memory, in an order that the processor cannot predict.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from leapmpi.nn.kernels.simd import COLUMNS, FLOAT, INDEX, VECTOR, add_product, load, pointer, prefetch
from leapmpi.system.jit import compiled, compiled_parallel, prange

_WIDE = 4
"""Vectors of a row that are summed at once."""


def _sum_of(vectors: int):
    """An intrinsic that sums `vectors` vectors of each row."""

    @intrinsic
    def set_sum(typing_context, rows, weight, edges, offset, out):
        """out[:] = sum over e < edges of weight[e] * rows[e][:], of the columns from `offset` (bytes) on.

        rows: address of int64[2 edges], the addresses of the rows, then of those to prefetch; weight, out: addresses of
        float32. All are int64.
        """

        def generate(context, build, signature, arguments):
            rows, weight, edges, offset, out = arguments
            # LLVM keeps these stack slots in registers.
            sums = [cgutils.alloca_once_value(build, ir.Constant(VECTOR, [0.0] * COLUMNS)) for _ in range(vectors)]

            with cgutils.for_range(build, edges) as loop:
                row = build.add(offset, load(build, rows, INDEX(8), loop.index, INDEX))
                later = build.add(offset, load(build, rows, INDEX(8), build.add(edges, loop.index), INDEX))
                factor = load(build, weight, INDEX(4), loop.index, FLOAT)
                for k, total in enumerate(sums):
                    prefetch(build, build.add(later, INDEX(4 * COLUMNS * k)))
                    add_product(build, total, factor, load(build, row, INDEX(4 * COLUMNS), INDEX(k), VECTOR))

            for k, total in enumerate(sums):
                build.store(build.load(total), pointer(build, out, INDEX(4 * COLUMNS), INDEX(k), VECTOR), align=4)
            return context.get_dummy_value()

        return types.void(*(types.int64,) * 5), generate

    return set_sum


_set_narrow_sum, _set_wide_sum = _sum_of(1), _sum_of(_WIDE)


@compiled
def _sum_rows(first, end, indptr, addresses, weight, out):
    """Rows `first` to `end` (exclusive) of `weighted_sums`."""
    width = out.shape[1]
    rows_at = np.int64(addresses.ctypes.data)
    weight_at = np.int64(weight.ctypes.data)
    out_at = np.int64(out.ctypes.data)

    for i in range(first, end):
        begin, edges = indptr[i], indptr[i + 1] - indptr[i]
        rows, weights, sums = rows_at + 8 * begin, weight_at + 4 * begin, out_at + 4 * i * width
        column = 0
        while column < width:
            if width - column >= _WIDE * COLUMNS:
                _set_wide_sum(rows, weights, edges, 4 * column, sums + 4 * column)
                column += _WIDE * COLUMNS
            else:
                # The last columns are those of a vector that overlaps the one before, whose sums it repeats.
                column = min(column, width - COLUMNS)
                _set_narrow_sum(rows, weights, edges, 4 * column, sums + 4 * column)
                column += COLUMNS


@compiled
def _locate(first, end, indices, addresses, of_edges):
    """The addresses of the rows of edges `first` to `end` (exclusive)."""
    for e in range(first, end):
        of_edges[e] = addresses[indices[e]]


@compiled
def _locate_in_matrix(first, end, indices, base, step, of_edges):
    """As `_locate`, of rows that begin at `base` and follow each other by `step` bytes."""
    for e in range(first, end):
        of_edges[e] = base + step * np.int64(indices[e])


@compiled
def _most_edges(indptr):
    """The most edges of a destination."""
    most = 0
    for i in range(len(indptr) - 1):
        most = max(most, indptr[i + 1] - indptr[i])
    return most


@compiled_parallel
def weighted_sums(indptr, indices, weight, addresses, out, shares):
    """out[i] = sum over edges e of destination i of weight[e] * x[indices[e]], in the order of edges.

    indptr int64[n + 1], indices int32 or int64[edges], not empty, and weight float32[edges] list the edges; x is given
    by addresses int64[sources] of float32 rows; out is float32[n, width], of 16 columns or more. All are C-contiguous.
    The destinations are divided into `shares`, one per thread.
    """
    # The address of each edge's row. Destinations prefetch as many addresses behind theirs: pad for the last ones.
    rows, edges = len(indptr) - 1, len(indices)
    of_edges = np.empty(edges + _most_edges(indptr), np.int64)
    of_edges[edges:] = addresses[indices[-1]]
    for share in prange(shares):
        _locate(edges * share // shares, edges * (share + 1) // shares, indices, addresses, of_edges)

    for share in prange(shares):
        _sum_rows(rows * share // shares, rows * (share + 1) // shares, indptr, of_edges, weight, out)


@compiled_parallel
def weighted_sums_of_matrix(indptr, indices, weight, x, out, shares):
    """As `weighted_sums`, for x float32[sources, width], C-contiguous, which may be read-only."""
    rows, edges = len(indptr) - 1, len(indices)
    base, step = np.int64(x.ctypes.data), np.int64(4 * x.shape[1])
    of_edges = np.empty(edges + _most_edges(indptr), np.int64)
    of_edges[edges:] = base + step * np.int64(indices[-1])
    for share in prange(shares):
        first, end = edges * share // shares, edges * (share + 1) // shares
        _locate_in_matrix(first, end, indices, base, step, of_edges)

    for share in prange(shares):
        _sum_rows(rows * share // shares, rows * (share + 1) // shares, indptr, of_edges, weight, out)
