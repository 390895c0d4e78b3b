"""Decoder of WebGraph's BVGraph bit streams (Boldi and Vigna, "The WebGraph Framework I", WWW 2004).

A record per vertex: its outdegree; a reference, the distance back to the vertex whose list it copies from; blocks of
that list that are copied and skipped in turn; intervals of consecutive successors; the residual successors as gaps.
Bits are read from the most significant of each byte on. Records follow each other, so a file of offsets is not needed.
Nothing in the stream is trusted: each read is bounded by its end, each list by the number of vertices. Those kernels
that read a number return it with the position after it, in bits, which is beyond the end where the stream ends before.
The others raise ValueError for the first fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from leapmpi.dataset.hdf5.names import index_dtype
from leapmpi.errors import DataError, counted
from leapmpi.system.jit import compiled

UNARY, GAMMA, DELTA, ZETA, GOLOMB, NIBBLE = range(6)
CODES = {"UNARY": UNARY, "GAMMA": GAMMA, "DELTA": DELTA, "ZETA": ZETA, "GOLOMB": GOLOMB, "NIBBLE": NIBBLE}

_BLOCKS = "the blocks copied are longer than the list they are copied from, or than the outdegree"
_SUCCESSOR = "a successor is negative or not below the number of vertices"

_ARCS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class BVFormat:
    """Content of the .properties file: counts, sizes, and the code (see `CODES`) of each kind of number.

    zeta: the parameter of zeta codes, and the modulus of Golomb codes. shortest_interval: 0 for no intervals.
    """

    vertices: int
    arcs: int
    window: int = 7
    shortest_interval: int = 4
    zeta: int = 3
    outdegrees: int = GAMMA
    references: int = UNARY
    block_counts: int = GAMMA
    blocks: int = GAMMA
    residuals: int = ZETA


@compiled
def _bits(data, position, count):
    """Read the next `count` bits as a number."""
    # 61 bits leave room for what is added to a number later.
    if count > 61 or position + count > 8 * len(data):
        return 0, 8 * len(data) + 1
    value = 0
    while count > 0:
        left = 8 - (position & 7)
        taken = min(left, count)
        chunk = (np.int64(data[position >> 3]) >> (left - taken)) & ((1 << taken) - 1)
        value = (value << taken) | chunk
        position += taken
        count -= taken
    return value, position


@compiled
def _unary(data, position):
    """Count the zeros before the next one."""
    start = position
    while position < 8 * len(data):
        if (position & 7) == 0 and data[position >> 3] == 0:
            position += 8
        elif (np.int64(data[position >> 3]) >> (7 - (position & 7))) & 1:
            return position - start, position + 1
        else:
            position += 1
    return 0, 8 * len(data) + 1


@compiled
def _gamma(data, position):
    """Read Elias's gamma code: the number of bits in unary, then the bits."""
    length, position = _unary(data, position)
    value, position = _bits(data, position, length)
    return (value | (1 << min(length, 61))) - 1, position


@compiled
def _zeta(data, position, k):
    """Read a zeta code (Boldi and Vigna, DCC 2004): the length in units of `k` bits in unary, then minimal binary."""
    height, position = _unary(data, position)
    value, position = _bits(data, position, height * k + k - 1)
    least = 1 << min(height * k, 61)
    if value < least:
        return value + least - 1, position
    bit, position = _bits(data, position, 1)
    return (value << 1) + bit - 1, position


@compiled
def _golomb(data, position, modulus):
    """Read a Golomb code: the quotient in unary, then the remainder in minimal binary."""
    quotient, position = _unary(data, position)
    log = 0
    while (modulus >> (log + 1)) > 0:
        log += 1
    short = (1 << (log + 1)) - modulus
    rest, position = _bits(data, position, log)
    if rest >= short:
        bit, position = _bits(data, position, 1)
        rest = (rest << 1) + bit - short
    return quotient * modulus + rest, position


@compiled
def _nibble(data, position):
    """Read three bits at a time, each group after a bit that is one for the last group."""
    value, group = 0, 0
    while group < 8 and position <= 8 * len(data):
        group, position = _bits(data, position, 4)
        if value >= 1 << 58:
            return 0, 8 * len(data) + 1
        value = (value << 3) | (group & 7)
    return value, position


@compiled
def _number(data, position, code, k):
    """Read the next number in the given code. Raises ValueError where the stream ends before."""
    if code == UNARY:
        value, position = _unary(data, position)
    elif code == GAMMA:
        value, position = _gamma(data, position)
    elif code == DELTA:
        length, position = _gamma(data, position)
        value, position = _bits(data, position, length)
        value = (value | (1 << min(length, 61))) - 1
    elif code == ZETA:
        value, position = _zeta(data, position, k)
    elif code == GOLOMB:
        value, position = _golomb(data, position, k)
    else:
        value, position = _nibble(data, position)
    # Readers of bits run past the end without a check; this one check covers them.
    if position > 8 * len(data):
        raise ValueError("the bit stream ends within a record; is the file truncated?")
    return value, position


@compiled
def _signed(number):
    """Convert a natural number to the integer that it encodes: 0, -1, 1, -2, 2, ..."""
    return number >> 1 if number & 1 == 0 else -((number + 1) >> 1)


@compiled
def _copy_blocks(data, position, codes, k, source, out):
    """Begin `out` with the copied blocks of the list `source`; returns successors so far, position."""
    count, position = _number(data, position, codes[2], k)
    source_place = filled = 0
    for block in range(count + 1):
        # The rest of the list after the last block is copied if an even number of blocks came before.
        length = len(source) - source_place
        if block < count:
            length, position = _number(data, position, codes[3], k)
            length += block > 0
        if length > len(source) - source_place or (block & 1 == 0 and length > len(out) - filled):
            raise ValueError(_BLOCKS)
        if block & 1 == 0:
            for i in range(length):
                out[filled + i] = source[source_place + i]
            filled += length
        source_place += length
    return filled, position


@compiled
def _expand_intervals(data, position, shortest, vertex, vertices, out, filled):
    """Append the intervals to `out`; returns successors so far, position."""
    count, position = _number(data, position, GAMMA, 0)
    previous = vertex
    for interval in range(count):
        left, position = _number(data, position, GAMMA, 0)
        length, position = _number(data, position, GAMMA, 0)

        # The left end follows the interval before it; the first may precede the vertex.
        length += shortest
        previous = vertex + _signed(left) if interval == 0 else previous + left + 1
        if length > len(out) - filled:
            raise ValueError("the intervals hold more successors than the outdegree")
        if previous < 0 or previous > vertices - length:
            raise ValueError(_SUCCESSOR)
        for i in range(length):
            out[filled + i] = previous + i
        filled += length
        previous += length
    return filled, position


@compiled
def _append_residuals(data, position, code, k, vertex, vertices, out, filled):
    """Fill the rest of `out` with the residuals; returns the position."""
    previous = vertex
    for i in range(filled, len(out)):
        gap, position = _number(data, position, code, k)
        previous = vertex + _signed(gap) if i == filled else previous + gap + 1
        if previous < 0 or previous >= vertices:
            raise ValueError(_SUCCESSOR)
        out[i] = previous
    return position


@compiled
def _decode(data, at, codes, k, window, shortest, indptr, indices):
    """Decode records from `at`, vertex and position, on until all are done or `indices` is full.

    `at` then is the record it ended at, also after a fault. Returns the entries of `indices` that this one needs, or 0.
    """
    vertices = len(indptr) - 1
    vertex, position = at
    while vertex < vertices:
        # The outdegree, and a place for the list.
        start = indptr[vertex]
        degree, position = _number(data, position, codes[0], k)
        if degree > vertices:
            raise ValueError("the outdegree is larger than the number of vertices")
        if start + degree > len(indices):
            return start + degree
        indptr[vertex + 1] = start + degree

        # Copied blocks, then intervals, then residuals.
        out, filled = indices[start : start + degree], 0
        if degree > 0 and window > 0:
            back, position = _number(data, position, codes[1], k)
            if back > min(window, vertex):
                raise ValueError("the record copies from a vertex before the first or outside the window")
            if back > 0:
                source = indices[indptr[vertex - back] : indptr[vertex - back + 1]]
                filled, position = _copy_blocks(data, position, codes, k, source, out)
        if filled < degree and shortest > 0:
            filled, position = _expand_intervals(data, position, shortest, vertex, vertices, out, filled)
        position = _append_residuals(data, position, codes[4], k, vertex, vertices, out, filled)

        # In ascending order, each successor once.
        out.sort()
        for i in range(1, degree):
            if out[i] == out[i - 1]:
                raise ValueError("a successor occurs twice")
        vertex += 1
        at[0], at[1] = vertex, position
    return 0


def decode(data: np.ndarray, form: BVFormat, name: str) -> Iterator[np.ndarray]:
    """Yield the arcs in the stream `data` (uint8), by chunks [2, k] of vertices over their successors, in order.

    Takes memory for a number per vertex, and for the lists of one chunk. Raises DataError, naming the vertex and the
    byte offset of its record in `name`, when the stream contradicts itself or `form`.
    """
    # A record has at least one bit.
    if form.vertices > 8 * len(data):
        raise DataError(
            f"{name}: {counted(form.vertices, 'vertex')} are stated, but {counted(len(data), 'byte')} cannot hold as "
            "many"
        )
    codes = np.array([form.outdegrees, form.references, form.block_counts, form.blocks, form.residuals], np.int64)
    sizes = (form.zeta, form.window, form.shortest_interval)
    indptr = np.zeros(form.vertices + 1, np.int64)
    indices = np.empty(min(form.arcs, 8 * len(data), _ARCS_AT_ONCE), index_dtype(form.vertices))

    # Decode until `indices` is full, yield what is complete, make room, go on.
    at = np.zeros(2, np.int64)
    yielded = total = 0
    needed = 1
    while needed:
        try:
            needed = _decode(data, at, codes, *sizes, indptr, indices)
        except ValueError as error:
            raise DataError(f"{name}: vertex {at[0]}, at byte {at[1] // 8}: {error}") from error
        vertex, position = map(int, at)
        if vertex > yielded:
            total += int(indptr[vertex] - indptr[yielded])
            successors = indices[indptr[yielded] : indptr[vertex]]
            sources = np.repeat(np.arange(yielded, vertex, dtype=indices.dtype), np.diff(indptr[yielded : vertex + 1]))
            yield np.stack([sources, successors])
            yielded = vertex
        if needed:
            degree = int(needed - indptr[vertex])
            if total + degree > form.arcs:
                raise DataError(
                    f"{name}: vertex {vertex}, at byte {position // 8}: its {degree:,} successors are more than is "
                    f"left of the {form.arcs:,} arcs stated"
                )
            indices = _with_free_entries(indptr, indices, max(0, vertex - form.window), vertex, degree)

    # The stream must end where the properties say.
    if total != form.arcs:
        raise DataError(f"{name}: {total:,} arcs were decoded, but {form.arcs:,} are stated")
    if data[(position + 7) // 8 :].any():
        raise DataError(f"{name}: the last vertex ends at byte {position // 8}, but more data follow")


def _with_free_entries(indptr: np.ndarray, indices: np.ndarray, keep: int, vertex: int, degree: int) -> np.ndarray:
    """Move the lists of vertices keep ... vertex - 1, which later records may copy from, to the front.

    Returns the array, a larger one where necessary, with at least `degree` free entries behind these lists.
    """
    base, end = int(indptr[keep]), int(indptr[vertex])
    kept = end - base
    enough = kept + degree <= len(indices)
    target = indices if enough else np.empty(max(kept + degree, 2 * len(indices)), indices.dtype)
    target[:kept] = indices[base:end].copy()
    indptr[keep : vertex + 1] -= base
    return target
