"""Weighted rows added to rows of a matrix, each in the order of edges: the way back of the sums of row_sums.py."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from leapmpi.nn.kernels.simd import COLUMNS, FLOAT, INDEX, VECTOR, add_product_to
from leapmpi.system.jit import compiled


@intrinsic
def _add_row(typing_context, to, row, factor, columns):
    """to[:columns] += factor * row[:columns]; `to` and `row` are addresses (int64) of float32, `factor` is float32."""

    def generate(context, build, signature, arguments):
        to, row, factor, columns = arguments
        vectors = build.sdiv(columns, INDEX(COLUMNS))
        with cgutils.for_range(build, vectors) as loop:
            add_product_to(build, to, factor, row, build.mul(loop.index, INDEX(COLUMNS)), VECTOR)
        done = build.mul(vectors, INDEX(COLUMNS))
        with cgutils.for_range(build, build.sub(columns, done)) as loop:
            add_product_to(build, to, factor, row, build.add(done, loop.index), FLOAT)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, types.int64), generate


@compiled
def add_rows_to_sources(first, end, indptr, indices, weight, g, out):
    """out[indices[e]] += weight[e] * g[i] for each edge e of row i, where the source lies in [first, end).

    indptr int64[n + 1], indices int32 or int64[edges], weight float32[edges], g float32[n, width] and out
    float32[sources, width], C-contiguous. A thread walks through all edges and adds to its own rows.
    """
    width = g.shape[1]
    row_at, out_at = np.int64(g.ctypes.data), np.int64(out.ctypes.data)
    for i in range(len(g)):
        for e in range(indptr[i], indptr[i + 1]):
            source = np.int64(indices[e])
            if first <= source < end:
                _add_row(out_at + 4 * width * source, row_at + 4 * width * i, weight[e], width)
