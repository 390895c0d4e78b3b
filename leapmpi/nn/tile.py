"""A product's innermost loop, held in vector registers: a tile of 6 x 16 sums of single-precision products.

numba writes loops over arrays, and keeps no array in registers; this tile is therefore written in LLVM's terms. It fits
the 16 registers of AVX2 (Goto, van de Geijn: "Anatomy of high-performance matrix multiplication", TOMS 34(3), 2008),
and LLVM fits it to other processors.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from leapmpi.compiled import compiled, compiled_parallel, prange

ROWS, COLUMNS = 6, 16
_BLOCK = 256
"""Rows of both factors that are gone through at once: they stay in the first levels of cache."""

_FLOAT, _INDEX = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, COLUMNS)
_FUSED = ("contract",)


@intrinsic
def _add_tile(typing_context, x, column_step, row_step, g, g_step, out, out_step, rows):
    """out[i, :] += sum over r < rows of x[r, i] * g[r, :], for 6 columns i of x and 16 columns of g and out.

    Arrays are given by the addresses of their first elements and by steps in bytes, all int64.
    """

    def generate(context, build, signature, arguments):
        x, column_step, row_step, g, g_step, out, out_step, rows = arguments
        sums = []
        for i in range(ROWS):
            where = _pointer(build, out, out_step, _INDEX(i), _VECTOR)
            sums.append((where, cgutils.alloca_once_value(build, build.load(where, align=4))))
        with cgutils.for_range(build, rows) as loop:
            row = build.load(_pointer(build, g, g_step, loop.index, _VECTOR), align=4)
            first = build.add(x, build.mul(row_step, loop.index))
            for i, (_, total) in enumerate(sums):
                factor = build.load(_pointer(build, first, column_step, _INDEX(i), _FLOAT), align=4)
                product = build.fmul(_repeated(build, factor), row, flags=_FUSED)
                build.store(build.fadd(product, build.load(total), flags=_FUSED), total)
        for where, total in sums:
            build.store(build.load(total), where, align=4)
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 8), generate


def _pointer(build, base, step, number, kind):
    return build.inttoptr(build.add(base, build.mul(step, number)), kind.as_pointer())


def _repeated(build, value):
    """A vector with `value` in all places."""
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = build.insert_element(undefined, value, ir.IntType(32)(0))
    return build.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), COLUMNS), [0] * COLUMNS))


@compiled
def _add_columns(x, g, out, first, end, begin, count):
    """Columns first to end (exclusive, a multiple of 6 apart) of x, rows begin to begin + count."""
    width, height = x.shape[1], g.shape[1]
    x_at, g_at, out_at = np.int64(x.ctypes.data), np.int64(g.ctypes.data), np.int64(out.ctypes.data)
    for f in range(first, end, ROWS):
        for h in range(0, height, COLUMNS):
            _add_tile(
                x_at + 4 * (begin * width + f), 4, 4 * width,
                g_at + 4 * (begin * height + h), 4 * height,
                out_at + 4 * ((f - first) * height + h), 4 * height, count,
            )  # fmt: skip


@compiled_parallel
def sum_of_outer(g, x, out, shares):
    """out += x^T g for float32 x [rows, in], g [rows, 16 k] and out [in, 16 k], all C-contiguous, `in` at least 6.

    The columns of x are cut into `shares` for as many threads. Each element is summed in the order of rows.
    """
    rows, width = x.shape
    tiles = width // ROWS
    rest = width - tiles * ROWS
    # The last columns are those of a tile that overlaps the one before.
    last = np.zeros((ROWS, g.shape[1]), np.float32)
    for share in prange(shares):
        first, end = ROWS * (tiles * share // shares), ROWS * (tiles * (share + 1) // shares)
        for begin in range(0, rows, _BLOCK):
            count = min(_BLOCK, rows - begin)
            _add_columns(x, g, out[first:end], first, end, begin, count)
            if rest and share == shares - 1:
                _add_columns(x, g, last, width - ROWS, width, begin, count)
    out[width - rest :] += last[ROWS - rest :]
