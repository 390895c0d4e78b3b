"""Vectors of 16 single-precision numbers that stay in registers, in LLVM's intermediate language.

The kernels of gemm_tile.py, row_sums.py and head_rows.py are built of these. numba alone cannot: it compiles loops over
arrays, and keeps no array in registers. `build` is LLVM's instruction builder; addresses are 64-bit integers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

COLUMNS = 16
"""Elements of a vector: a cache line, two registers of AVX2. LLVM splits it to fit other processors."""

FLOAT, INDEX, _NUMBER = ir.FloatType(), ir.IntType(64), ir.IntType(32)
VECTOR = ir.VectorType(FLOAT, COLUMNS)
_FUSED = ("contract",)  # a product and its sum may become one instruction, which rounds once
_BYTE = ir.IntType(8)


def pointer(build: ir.IRBuilder, base: Any, step: Any, number: Any, kind: ir.Type) -> Any:
    """Make a pointer to element `number` of an array of `kind` at address `base`, with `step` bytes each."""
    return build.inttoptr(build.add(base, build.mul(step, number)), kind.as_pointer())


def load(build: ir.IRBuilder, base: Any, step: Any, number: Any, kind: ir.Type) -> Any:
    """Return the element that `pointer` points to."""
    # Rows in mapped files may begin at any byte; arrays of addresses are numpy's, and aligned.
    return build.load(pointer(build, base, step, number, kind), align=8 if kind is INDEX else 1)


def repeated(build: ir.IRBuilder, value: Any, lanes: int = COLUMNS) -> Any:
    """Make a vector with `value` in all `lanes` places."""
    undefined = ir.Constant(ir.VectorType(FLOAT, lanes), ir.Undefined)
    first = build.insert_element(undefined, value, _NUMBER(0))
    return build.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_NUMBER, lanes), [0] * lanes))


def add_product(build: ir.IRBuilder, total: Any, factor: Any, row: Any) -> None:
    """Add factor * row to the stack slot `total` of a vector, for the vector `row` and the number `factor`."""
    add_products(build, total, repeated(build, factor, row.type.count), row)


def add_products(build: ir.IRBuilder, total: Any, a: Any, b: Any) -> None:
    """Add a * b, element by element, to the stack slot `total` of a vector, for the vectors `a` and `b`."""
    build.store(build.fadd(build.fmul(a, b, flags=_FUSED), build.load(total), flags=_FUSED), total)


def sum_of(build: ir.IRBuilder, vector: Any) -> Any:
    """Return the sum of the elements of `vector`, added up in the order that takes the fewest instructions."""
    kind = ir.FunctionType(FLOAT, [FLOAT, vector.type])
    name = f"llvm.vector.reduce.fadd.v{vector.type.count}f32"
    add_up = build.module.globals.get(name) or ir.Function(build.module, kind, name)
    return build.call(add_up, [FLOAT(-0.0), vector], fastmath=("reassoc",))


def add_product_to(build: ir.IRBuilder, to: Any, factor: Any, row: Any, number: Any, kind: ir.Type) -> None:
    """Add factor * row[number] to to[number], and likewise a whole vector where `kind` is VECTOR.

    `to` and `row` are addresses of single-precision numbers.
    """
    total, summand = (pointer(build, base, INDEX(4), number, kind) for base in (to, row))
    product = build.fmul(
        repeated(build, factor) if kind is VECTOR else factor, build.load(summand, align=4), flags=_FUSED
    )
    build.store(build.fadd(product, build.load(total, align=4), flags=_FUSED), total, align=4)


def copy_to(build: ir.IRBuilder, to: Any, row: Any, number: Any, kind: ir.Type) -> None:
    """Copy row[number] to to[number], or a whole vector, as `add_product_to` adds it."""
    target, value = (pointer(build, base, INDEX(4), number, kind) for base in (to, row))
    build.store(build.load(value, align=4), target, align=4)


def prefetch(build: ir.IRBuilder, address: Any) -> None:
    """Prefetch the cache line at `address` into the second level of cache. Any address is allowed."""
    place = _BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [place, _NUMBER, _NUMBER, _NUMBER])
    instruction = build.module.declare_intrinsic("llvm.prefetch", [place], kind)
    # The operands of llvm.prefetch: for reading, second level of cache, data.
    build.call(instruction, [build.inttoptr(address, place), _NUMBER(0), _NUMBER(2), _NUMBER(1)])
