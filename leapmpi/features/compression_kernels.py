"""Compiled loops that turn rows of float32 into float16, bfloat16 or scaled int8, and back.

Rounding is to nearest, ties to even. Each encoder gathers the rows it encodes and returns the sum and the largest of
their relative errors; each decoder places the rows it decodes.
"""

from __future__ import annotations

import numpy as np

from leapmpi.system.jit import compiled, compiled_dot

_U32, _U16 = np.uint32, np.uint16
_SIGN, _MAGNITUDE, _INFINITE = _U32(0x80000000), _U32(0x7FFFFFFF), _U32(0x7F800000)
_HALF_NORMAL, _HALF_OVERFLOW = _U32(0x38800000), _U32(0x477FF000)  # 2**-14, and 65520, which rounds to infinity
_HALF_LARGEST, _HALF_INFINITE, _HALF_NAN = _U32(0x7BFF), _U32(0x7C00), _U32(0x7E00)
_BRAIN_OVERFLOW, _BRAIN_LARGEST, _BRAIN_NAN = _U32(0x7F7F8000), _U32(0x7F7F), _U32(0x7FC0)
_SUBNORMAL_STEPS = np.float32(2.0**24)
_EXPONENTS = np.float32(2.0**112)  # between the exponents of float16 and float32 of the same bits


@compiled_dot
def _relative(row, decoded):
    """The norm of decoded - row over that of row; 0 for a row of zeros."""
    difference, whole = 0.0, 0.0
    for j in range(len(row)):
        d = np.float64(decoded[j]) - np.float64(row[j])
        difference += d * d
        whole += np.float64(row[j]) * np.float64(row[j])
    return np.sqrt(difference / whole) if whole > 0 else 0.0


@compiled
def _to_half(row, bits, out):
    """float32 to float16, by integer arithmetic on the bits."""
    for j in range(len(row)):
        magnitude = bits[j] & _MAGNITUDE
        if magnitude < _HALF_NORMAL:
            # Subnormal in float16: a whole number of steps of 2**-24.
            half = _U32(np.rint(np.abs(row[j]) * _SUBNORMAL_STEPS))
        elif magnitude < _HALF_OVERFLOW:
            # Drop 13 bits of the mantissa, to the nearest, ties to even; change the bias of the exponent.
            half = ((magnitude + _U32(0xFFF) + ((magnitude >> _U32(13)) & _U32(1))) >> _U32(13)) - _U32(112 << 10)
        elif magnitude < _INFINITE:
            half = _HALF_LARGEST
        else:
            half = _HALF_INFINITE if magnitude == _INFINITE else _HALF_NAN
        out[j] = _U16(half | ((bits[j] & _SIGN) >> _U32(16)))


@compiled
def _from_half(half, words, values):
    """float16 to float32. `words` (uint32) and `values` (float32) share memory, and get the row."""
    # Shift exponent and mantissa into place; then one product corrects the bias, for subnormal values too.
    for j in range(len(half)):
        words[j] = (_U32(half[j]) & _U32(0x7FFF)) << _U32(13)
    for j in range(len(half)):
        values[j] = values[j] * _EXPONENTS
    # Put back the sign, and the exponent of infinities and NaN.
    for j in range(len(half)):
        special = _INFINITE if (half[j] & _U16(0x7C00)) == _U16(0x7C00) else _U32(0)
        words[j] |= special | ((_U32(half[j]) & _U32(0x8000)) << _U32(16))


@compiled
def _to_brain(bits, out):
    """float32 to bfloat16: the upper half of the bits, to the nearest, ties to even."""
    for j in range(len(bits)):
        magnitude = bits[j] & _MAGNITUDE
        brain = (magnitude + _U32(0x7FFF) + ((magnitude >> _U32(16)) & _U32(1))) >> _U32(16)
        brain = _BRAIN_LARGEST if _BRAIN_OVERFLOW <= magnitude < _INFINITE else brain
        brain = _BRAIN_NAN if magnitude > _INFINITE else brain
        out[j] = _U16(brain | ((bits[j] & _SIGN) >> _U32(16)))


@compiled
def _from_brain(brain, words):
    for j in range(len(brain)):
        words[j] = _U32(brain[j]) << _U32(16)


@compiled
def _scale_of(row):
    """A 127th of the largest magnitude; NaN when a value is not finite."""
    largest = np.float32(0)
    for j in range(len(row)):
        largest = max(largest, np.abs(row[j]))
    for j in range(len(row)):
        if not np.isfinite(row[j]):
            return np.float32(np.nan)
    return largest / np.float32(127)


@compiled
def _to_int8(row, scale, out):
    for j in range(len(row)):
        out[j] = np.int8(np.rint(row[j] / scale)) if scale > 0 else np.int8(0)


@compiled
def _from_int8(steps, scale, values):
    for j in range(len(steps)):
        values[j] = np.float32(steps[j]) * scale


@compiled
def _to_16_bit(row, bits, out, brain):
    if brain:
        _to_brain(bits, out)
    else:
        _to_half(row, bits, out)


@compiled
def _from_16_bit(encoded, values, brain):
    if brain:
        _from_brain(encoded, values.view(np.uint32))
    else:
        _from_half(encoded, values.view(np.uint32), values)


@compiled
def encode_16_bit(source, bits, rows, first, out, positions, values, brain):
    """To bfloat16 if `brain`, else float16; row rows[i] - first of `source` goes to positions[i] of `out` (uint16).

    `bits` is `source` as uint32; `values` float32[width] is working memory.
    """
    total, largest = 0.0, 0.0
    for i in range(len(rows)):
        r, p = rows[i] - first, positions[i]
        _to_16_bit(source[r], bits[r], out[p], brain)
        _from_16_bit(out[p], values, brain)
        error = _relative(source[r], values)
        total, largest = total + error, max(largest, error)
    return total, largest


@compiled
def encode_int8(source, rows, first, out, scales, positions, values):
    """To int8 `out` and a float32 scale per row; row rows[i] - first of `source` goes to positions[i]."""
    total, largest = 0.0, 0.0
    for i in range(len(rows)):
        r, p = rows[i] - first, positions[i]
        scale = scales[p, 0] = _scale_of(source[r])
        _to_int8(source[r], scale, out[p])
        _from_int8(out[p], scale, values)
        error = _relative(source[r], values)
        total, largest = total + error, max(largest, error)
    return total, largest


@compiled
def decode_16_bit(encoded, target, positions, values, brain):
    """From bfloat16 if `brain`, else float16: target[positions[i]] = row i of `encoded` (uint16)."""
    for i in range(len(positions)):
        _from_16_bit(encoded[i], values, brain)
        for j in range(len(values)):
            target[positions[i], j] = values[j]


@compiled
def decode_int8(encoded, scales, target, positions, values):
    """From int8 with a scale per row: target[positions[i]] = row i."""
    for i in range(len(positions)):
        _from_int8(encoded[i], scales[i, 0], values)
        for j in range(len(values)):
            target[positions[i], j] = values[j]
