"""Vectors of single-precision numbers in registers, written in LLVM's terms: what the kernels of this folder share.

numba writes loops over arrays, and keeps no array in registers.
"""

from __future__ import annotations

from llvmlite import ir

COLUMNS = 16
"""Elements of a vector: a line of cache, two registers of AVX2; LLVM fits it to other processors."""

FLOAT, INDEX, _NUMBER = ir.FloatType(), ir.IntType(64), ir.IntType(32)
VECTOR = ir.VectorType(FLOAT, COLUMNS)
_FUSED = ("contract",)
_BYTE = ir.IntType(8)


def pointer(build, base, step, number, kind):
    """To element `number` of `kind`, at `step` bytes from each other, from address `base` on."""
    return build.inttoptr(build.add(base, build.mul(step, number)), kind.as_pointer())


def load(build, base, step, number, kind):
    """The element that `pointer` points to. Rows in mapped files may begin at any byte."""
    return build.load(pointer(build, base, step, number, kind), align=8 if kind is INDEX else 1)


def _repeated(build, value):
    """A vector with `value` in all places."""
    undefined = ir.Constant(VECTOR, ir.Undefined)
    first = build.insert_element(undefined, value, _NUMBER(0))
    return build.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_NUMBER, COLUMNS), [0] * COLUMNS))


def add_product(build, total, factor, row) -> None:
    """total += factor * row, for a vector held in `total`."""
    product = build.fmul(_repeated(build, factor), row, flags=_FUSED)
    build.store(build.fadd(product, build.load(total), flags=_FUSED), total)


def ask_for(build, address):
    """Bring the line of cache at `address` nearer."""
    place = _BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [place, _NUMBER, _NUMBER, _NUMBER])
    prefetch = build.module.declare_intrinsic("llvm.prefetch", [place], kind)
    # To read, into the second level of cache, as data.
    build.call(prefetch, [build.inttoptr(address, place), _NUMBER(0), _NUMBER(2), _NUMBER(1)])
