"""Machine instructions that numba does not offer by itself: prefetch, high words of products, counts of bits."""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_FOR_READING, _KEEP, _DATA = 0, 3, 1
"""Arguments of LLVM's prefetch: for reading, into all caches, of data and not of code."""


@intrinsic
def prefetch(typing_context, array, index):
    """Request the cache line of array[index], one-dimensional, without waiting for it. Never fails."""

    def generate(context, builder, signature, arguments):
        # The address of array[index], as LLVM's generic pointer.
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)

        # A call of LLVM's own function.
        word = ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, word, word, word])
        callee = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0")
        builder.call(callee, [address, word(_FOR_READING), word(_KEEP), word(_DATA)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def high_product(typing_context, a, b):
    """Return the high word of the 128-bit product of `a` and `b` (uint64), as uint64."""

    def generate(context, builder, signature, arguments):
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(each, wide) for each in arguments))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def trailing_zeros(typing_context, word):
    """Return the number of the lowest set bit of `word` (uint64, not 0), as uint64."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), generate


@intrinsic
def population_count(typing_context, word):
    """Count the set bits of `word` (uint64), as uint64."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate
