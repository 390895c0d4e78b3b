"""Rows of features in fewer bytes: the values of their elements, and the kernels that read them.

An element of float16 or bfloat16 is a number. One of int8 is a number q of steps from the middle of its column's range:
its value is q * step[column] + middle[column], with product and sum rounded to float32. Kernels convert 16 elements at
a time while they read a row, so no copy of the rows as float32 is held.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from leapmpi.nn.kernels.simd import COLUMNS, FLOAT, INDEX, VECTOR, pointer, prefetch
from leapmpi.system.jit import compiled

_LINE = 64
"""Bytes of a cache line."""


@dataclass(frozen=True)
class RowType:
    """A type of the elements of rows. `dtype` is that of arrays of them, of `size` bytes each."""

    name: str
    dtype: str
    size: int
    scaled: bool = False
    """Whether columns have steps and middles: float32[2, width]."""


FLOAT32 = RowType("float32", "<f4", 4)
ROW_TYPES = {
    np.dtype(each.dtype): each
    for each in (
        FLOAT32,
        RowType("float16", "<f2", 2),
        RowType("bfloat16", "<u2", 2),  # numpy has no bfloat16: its bits
        RowType("int8", "|i1", 1, scaled=True),
    )
}
"""The types by the dtype of arrays."""

NO_SCALE = np.zeros((2, 0), np.float32)
"""Steps and middles of columns that have none."""


def row_type(dtype: np.dtype, scale: np.ndarray | None) -> RowType | None:
    """Return the type of rows of arrays of `dtype`, with or without a `scale`; None for plain numbers of numpy."""
    found = ROW_TYPES.get(dtype)
    return found if found and found.scaled == (scale is not None) else None


def _number_type(kind: RowType) -> ir.Type:
    return {"float32": FLOAT, "float16": ir.HalfType()}.get(kind.name, ir.IntType(8 * kind.size))


def load_floats(build: ir.IRBuilder, kind: RowType, row: Any, column: Any, lanes: int = COLUMNS) -> Any:
    """Return the elements of the row at address `row` from number `column` on, as floats; for int8 the steps.

    `lanes` is COLUMNS, for a vector, or 1, for a number.
    """
    many = (lambda each: each) if lanes == 1 else (lambda each: ir.VectorType(each, COLUMNS))
    place = pointer(build, row, INDEX(kind.size), column, many(_number_type(kind)))
    # Rows in mapped files may begin at any byte.
    found = build.load(place, align=1)
    if kind.name == "float16":
        return build.fpext(found, many(FLOAT))
    if kind.name == "bfloat16":
        # The upper half of the bits of a float.
        word = many(ir.IntType(32))
        shift = ir.Constant(word, 16 if lanes == 1 else [16] * COLUMNS)
        return build.bitcast(build.shl(build.zext(found, word), shift), many(FLOAT))
    return build.sitofp(found, many(FLOAT)) if kind.name == "int8" else found


def prefetch_columns(build: ir.IRBuilder, kind: RowType, row: Any, vector: int) -> None:
    """Prefetch the cache line where vector number `vector` of the row at address `row` begins, once for each line."""
    if vector * kind.size * COLUMNS % _LINE == 0:
        prefetch(build, build.add(row, INDEX(vector * kind.size * COLUMNS)))


def decoder(kind: RowType, ahead: bool = True) -> Any:
    """Make an intrinsic that writes a row of `kind` as float32; with `ahead` it prefetches another row."""
    prefetches = ahead

    @intrinsic
    def decode(typing_context, row, ahead, step, middle, out, count):
        """Set out[j] to the value of element j of the row at `row`, j < count; those at `ahead` may be prefetched.

        All are int64: addresses, of steps and middles of the same columns too, and the number of elements.
        """

        def generate(context, build, signature, arguments):
            row, ahead, step, middle, out, count = arguments

            def convert(column, lanes):
                target = FLOAT if lanes == 1 else VECTOR
                values = load_floats(build, kind, row, column, lanes)
                if kind.scaled:
                    # Rounded twice on any processor: a fused instruction would change bits.
                    by_column = [
                        build.load(pointer(build, base, INDEX(4), column, target), align=4) for base in (step, middle)
                    ]
                    values = build.fadd(build.fmul(values, by_column[0]), by_column[1])
                build.store(values, pointer(build, out, INDEX(4), column, target), align=4)

            # Whole vectors first, then the columns that are left, one by one.
            vectors = build.udiv(count, INDEX(COLUMNS))
            with cgutils.for_range(build, vectors) as loop:
                column = build.mul(loop.index, INDEX(COLUMNS))
                if prefetches:
                    prefetch(build, build.add(ahead, build.mul(column, INDEX(kind.size))))
                convert(column, COLUMNS)
            done = build.mul(vectors, INDEX(COLUMNS))
            with cgutils.for_range(build, build.sub(count, done)) as loop:
                convert(build.add(done, loop.index), 1)
            return context.get_dummy_value()

        return types.void(*(types.int64,) * 6), generate

    return decode


@functools.cache
def _row_copier(kind: RowType) -> Callable[..., None]:
    """Make a `_row_reader` without a buffer, for a target float32[., width] that is C-contiguous."""
    decode = decoder(kind)

    @compiled
    def copy(base, stride, rows, scale, target, positions):
        width, out = target.shape[1], np.int64(target.ctypes.data)
        step = np.int64(scale.ctypes.data)
        middle = step + 4 * scale.shape[1]
        for i in range(len(rows)):
            ahead = base + stride * rows[min(i + 4, len(rows) - 1)]
            decode(base + stride * rows[i], ahead, step, middle, out + 4 * width * positions[i], width)

    return copy


@functools.cache
def _row_reader(kind: RowType) -> Callable[..., None]:
    """Make a kernel that reads rows of `kind`: read(base, stride, rows, scale, buffer, target, positions).

    target[positions[i]] = the row rows[i] of a matrix at address `base`, `stride` bytes each. rows and positions
    int64[k]; scale float32[2, width]; buffer float32[width] is working memory; target float[., width].
    """
    decode = decoder(kind)

    @compiled
    def read(base, stride, rows, scale, buffer, target, positions):
        width = target.shape[1]
        step = np.int64(scale.ctypes.data)
        middle, row = step + 4 * scale.shape[1], np.int64(buffer.ctypes.data)
        for i in range(len(rows)):
            ahead = base + stride * rows[min(i + 4, len(rows) - 1)]
            decode(base + stride * rows[i], ahead, step, middle, row, width)
            # Through a buffer in float32: the target may be of float64.
            target[positions[i]] = buffer

    return read


def read_rows(
    source: np.ndarray, rows: np.ndarray, scale: np.ndarray | None, target: np.ndarray, positions: np.ndarray
) -> None:
    """Set target[positions[i]] to the values of row rows[i] of `source`, of one of ROW_TYPES, C-contiguous.

    rows and positions int64[k], scale float32[2, width] or None, target float32 or float64[., width].
    """
    known = NO_SCALE if scale is None else scale
    read_addressed(ROW_TYPES[source.dtype], source.ctypes.data, source.strides[0], rows, known, target, positions)


def read_addressed(
    kind: RowType,
    base: int,
    stride: int,
    rows: np.ndarray,
    scale: np.ndarray,
    target: np.ndarray,
    positions: np.ndarray,
) -> None:
    """Read as `read_rows` does, rows of `kind` that begin at base + stride * rows[i]."""
    place = base, stride, rows, scale
    if target.dtype == np.float32 and target.flags.c_contiguous:
        _row_copier(kind)(*place, target, positions)
    else:
        _row_reader(kind)(*place, np.empty(target.shape[1], np.float32), target, positions)


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """Wrap `array` as a tensor on the same memory; bits of bfloat16 become numbers of that type."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def decoded(rows: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """Convert `rows` to their values, as `dtype`, to the bits of `read_rows`."""
    return (rows.to(dtype)) if scale is None else (rows.float() * scale[0] + scale[1]).to(dtype)
