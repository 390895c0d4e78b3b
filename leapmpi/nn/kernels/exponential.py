"""Exponentials and logarithms that loops over arrays can compute many at a time.

numba's own are calls into the C library, one number at a time, and LLVM cannot put several into a vector. These are
sums and products alone. Relative errors: of exponentials a few units in the last place, of logarithms of numbers above
1 likewise (tests/nn/kernels/test_exponential.py). Range reduction and series as in any book on elementary functions:
Muller, "Elementary functions" (2016), chapters 3 and 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numba import types
from numba.extending import overload

from leapmpi.system.jit import compiled_dividing

_LN2 = Fraction("0.69314718055994530941723212145817656807550013436")


def _exponential(kind: type, whole: type, bits: int, bias: int, least: float, terms: int) -> Callable:
    """Make exp(x) for the float type `kind`, whose numbers have `bits` bits of fraction; 0 below about `least`."""
    # ln 2 in two parts: a few leading bits, which small whole numbers multiply without rounding, and the rest.
    leading = kind(math.floor(math.log(2) * 2**10) / 2**10)
    rest = kind(_LN2 - Fraction(float(leading)))
    per_octave, half, one, floor = kind(1 / math.log(2)), kind(0.5), kind(1), kind(least)
    series = tuple(kind(1 / math.factorial(k)) for k in range(terms, 1, -1))
    shift, offset = whole(bits), whole(bias)

    @compiled_dividing
    def exponential(x):
        # x = n ln 2 + r with |r| <= ln(2) / 2.
        x = max(x, floor)
        n = np.floor(x * per_octave + half)
        r = (x - n * leading) - n * rest
        total = series[0]
        for k in range(1, len(series)):
            total = total * r + series[k]
        power = whole((whole(n) + offset) << shift).view(kind)
        return (total * r * r + r + one) * power

    return exponential


def _logarithm(kind: type, whole: type, bits: int, bias: int, terms: int) -> Callable:
    """Make log(x) for the float type `kind`, for ordinary numbers x > 0."""
    ln2, half, one, two, root = kind(_LN2), kind(0.5), kind(1), kind(2), kind(math.sqrt(2))
    series = tuple(kind(1 / (2 * k + 1)) for k in range(terms, 0, -1))
    shift, offset, fraction, ones = whole(bits), whole(bias), whole(2**bits - 1), whole(bias << bits)

    @compiled_dividing
    def logarithm(x):
        # x = 2^n m with m in [1 / sqrt 2, sqrt 2).
        word = kind(x).view(whole)
        n = kind((word >> shift) - offset)
        m = whole((word & fraction) | ones).view(kind)
        above = m > root
        n = n + one if above else n
        m = m * half if above else m

        # log m = 2 artanh(s).
        s = (m - one) / (m + one)
        square = s * s
        total = series[0]
        for k in range(1, len(series)):
            total = total * square + series[k]
        return n * ln2 + two * s * (one + total * square)

    return logarithm


_EXPONENTIALS = {
    types.float32: _exponential(np.float32, np.int32, 23, 127, -87.0, 7),
    types.float64: _exponential(np.float64, np.int64, 52, 1023, -708.0, 13),
}
_LOGARITHMS = {
    types.float32: _logarithm(np.float32, np.int32, 23, 127, 4),
    types.float64: _logarithm(np.float64, np.int64, 52, 1023, 11),
}


def exponential(x: float) -> float:
    """Compute exp(x) for x <= 88 (float32) or 709 (float64), in compiled code; below -87 or -708 that of the bound."""
    return math.exp(x)


def logarithm(x: float) -> float:
    """Compute log(x) for ordinary numbers x > 0, in compiled code."""
    return math.log(x)


@overload(exponential)
def _of_exponential(x):
    chosen = _EXPONENTIALS[x]
    return lambda x: chosen(x)


@overload(logarithm)
def _of_logarithm(x):
    chosen = _LOGARITHMS[x]
    return lambda x: chosen(x)


@compiled_dividing
def exponentials(values):
    """Replace `values`, float32 or float64[n, k], C-contiguous and none above 0, by their exponentials."""
    every = values.reshape(-1)
    for k in range(len(every)):
        every[k] = exponential(every[k])
