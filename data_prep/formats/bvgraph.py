"""Decoder of WebGraph's BVGraph bit streams (Boldi and Vigna, "The WebGraph Framework I", WWW 2004).

A record per vertex: its outdegree; a reference, which is how many vertices before it the list lies that it copies from;
blocks of that list that are copied and skipped in turn; intervals of consecutive successors; the residual successors as
gaps. Bits are read from
the most significant of each byte on. Records lie one after the other, so a file of offsets is not needed.
Nothing in the stream is trusted: each read is bounded by its end, each list by the number of vertices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from leapmpi.dataset.hdf5.names import index_dtype
from leapmpi.errors import DataError
from leapmpi.system.jit import compiled

UNARY, GAMMA, DELTA, ZETA, GOLOMB, NIBBLE = range(6)
CODES = {"UNARY": UNARY, "GAMMA": GAMMA, "DELTA": DELTA, "ZETA": ZETA, "GOLOMB": GOLOMB, "NIBBLE": NIBBLE}

_DONE, _GROW, _ENDS, _OUTDEGREE, _REFERENCE, _BLOCKS, _INTERVALS, _SUCCESSOR, _REPEATED = range(9)
_FAULTS = {
    _ENDS: "the bit stream ends within a record; is the file truncated?",
    _OUTDEGREE: "the outdegree is larger than the number of vertices",
    _REFERENCE: "the record copies from a vertex before the first or outside the window",
    _BLOCKS: "the blocks copied are longer than the list they are copied from, or than the outdegree",
    _INTERVALS: "the intervals hold more successors than the outdegree",
    _SUCCESSOR: "a successor is negative or not below the number of vertices",
    _REPEATED: "a successor occurs twice",
}

_ARCS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class BVFormat:
    """What the .properties say: counts, sizes, and the code (see `CODES`) of each kind of number.

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
def _bits(data, end, position, count):
    """The next `count` bits as a number, and the position after them; position -1 when the stream ends before."""
    # 61 bits leave room for what is added to a number later.
    if position < 0 or count > 61 or position + count > end:
        return 0, -1
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
def _unary(data, end, position):
    """The number of zeros before the next one."""
    if position < 0:
        return 0, -1
    start = position
    while position < end:
        if (position & 7) == 0 and data[position >> 3] == 0:
            position += 8
        elif (np.int64(data[position >> 3]) >> (7 - (position & 7))) & 1:
            return position - start, position + 1
        else:
            position += 1
    return 0, -1


@compiled
def _gamma(data, end, position):
    """Elias's gamma code: the number of bits in unary, then the bits."""
    length, position = _unary(data, end, position)
    value, position = _bits(data, end, position, length)
    return (value | (1 << min(length, 61))) - 1, position


@compiled
def _zeta(data, end, position, k):
    """Zeta code (Boldi and Vigna, DCC 2004): the length in units of `k` bits in unary, then minimal binary."""
    height, position = _unary(data, end, position)
    if height > 61:
        return 0, -1
    value, position = _bits(data, end, position, height * k + k - 1)
    if position < 0:
        return 0, -1
    least = 1 << (height * k)
    if value < least:
        return value + least - 1, position
    bit, position = _bits(data, end, position, 1)
    return (value << 1) + bit - 1, position


@compiled
def _golomb(data, end, position, modulus):
    """Golomb code: the quotient in unary, then the remainder in minimal binary."""
    if modulus == 0:
        return 0, position
    quotient, position = _unary(data, end, position)
    log = 0
    while (modulus >> (log + 1)) > 0:
        log += 1
    short = (1 << (log + 1)) - modulus
    rest, position = _bits(data, end, position, log)
    if rest >= short:
        bit, position = _bits(data, end, position, 1)
        rest = (rest << 1) + bit - short
    return quotient * modulus + rest, position


@compiled
def _nibble(data, end, position):
    """Three bits at a time, each group after a bit that is one for the last group."""
    value, last = 0, 0
    while last == 0 and position >= 0:
        last, position = _bits(data, end, position, 1)
        group, position = _bits(data, end, position, 3)
        if value >= 1 << 58:
            return 0, -1
        value = (value << 3) | group
    return value, position


@compiled
def _number(data, end, position, code, k):
    """The next number in the given code, and the position after it (-1 where the stream ends before)."""
    if code == UNARY:
        return _unary(data, end, position)
    if code == GAMMA:
        return _gamma(data, end, position)
    if code == DELTA:
        length, position = _gamma(data, end, position)
        value, position = _bits(data, end, position, length)
        return (value | (1 << min(length, 61))) - 1, position
    if code == ZETA:
        return _zeta(data, end, position, k)
    if code == GOLOMB:
        return _golomb(data, end, position, k)
    return _nibble(data, end, position)


@compiled
def _signed(number):
    """The integer that a natural number stands for: 0, -1, 1, -2, 2, ..."""
    return number >> 1 if number & 1 == 0 else -((number + 1) >> 1)


@compiled
def _copy_blocks(data, end, position, codes, k, source, out, filled, degree):
    """Append the copied blocks of the list `source` to `out`; returns status, successors so far, position."""
    count, position = _number(data, end, position, codes[2], k)
    source_place = 0
    for block in range(count + 1):
        if block < count:
            length, position = _number(data, end, position, codes[3], k)
            if position < 0:
                return _ENDS, filled, position
            length += block > 0
        else:
            # The rest of the list after the last block is copied if an even number of blocks came before.
            length = len(source) - source_place
        if length > len(source) - source_place:
            return _BLOCKS, filled, position
        if block & 1 == 0:
            if length > degree - filled:
                return _BLOCKS, filled, position
            for i in range(length):
                out[filled + i] = source[source_place + i]
            filled += length
        source_place += length
    return (_ENDS if position < 0 else _DONE), filled, position


@compiled
def _expand_intervals(data, end, position, shortest, vertex, vertices, out, filled, degree):
    """Append the intervals to `out`; returns status, successors so far, position."""
    count, position = _gamma(data, end, position)
    previous = vertex
    for interval in range(count):
        left, position = _gamma(data, end, position)
        length, position = _gamma(data, end, position)
        if position < 0:
            return _ENDS, filled, position

        # The left end follows the interval before it; the first may lie before the vertex.
        length += shortest
        previous = vertex + _signed(left) if interval == 0 else previous + left + 1
        if length > degree - filled:
            return _INTERVALS, filled, position
        if previous < 0 or previous > vertices - length:
            return _SUCCESSOR, filled, position
        for i in range(length):
            out[filled + i] = previous + i
        filled += length
        previous += length
    return (_ENDS if position < 0 else _DONE), filled, position


@compiled
def _append_residuals(data, end, position, code, k, vertex, vertices, out, filled, degree):
    """Fill `out` up to `degree` with the residuals; returns status, position."""
    previous = vertex
    for i in range(filled, degree):
        gap, position = _number(data, end, position, code, k)
        if position < 0:
            return _ENDS, position
        previous = vertex + _signed(gap) if i == filled else previous + gap + 1
        if previous < 0 or previous >= vertices:
            return _SUCCESSOR, position
        out[i] = previous
    return _DONE, position


@compiled
def _decode(data, position, vertex, codes, k, window, shortest, indptr, indices):
    """Decode records from `vertex` on until all are done, `indices` is full, or a fault.

    Returns status, vertex and position of the record it ended at, and the entries of `indices` needed for it.
    """
    end, vertices = len(data) * 8, len(indptr) - 1
    while vertex < vertices:
        # The outdegree, and a place for the list.
        record, start = position, indptr[vertex]
        degree, position = _number(data, end, position, codes[0], k)
        if position < 0:
            return _ENDS, vertex, record, 0
        if degree > vertices:
            return _OUTDEGREE, vertex, record, 0
        if start + degree > len(indices):
            return _GROW, vertex, record, start + degree
        indptr[vertex + 1] = start + degree

        # Copied blocks, then intervals, then residuals.
        out, filled, status = indices[start : start + degree], 0, _DONE
        if degree > 0 and window > 0:
            back, position = _number(data, end, position, codes[1], k)
            if position < 0 or back > min(window, vertex):
                return (_ENDS if position < 0 else _REFERENCE), vertex, record, 0
            if back > 0:
                source = indices[indptr[vertex - back] : indptr[vertex - back + 1]]
                status, filled, position = _copy_blocks(data, end, position, codes, k, source, out, filled, degree)
        if status == _DONE and filled < degree and shortest > 0:
            status, filled, position = _expand_intervals(
                data, end, position, shortest, vertex, vertices, out, filled, degree
            )
        if status == _DONE and filled < degree:
            status, position = _append_residuals(
                data, end, position, codes[4], k, vertex, vertices, out, filled, degree
            )
        if status != _DONE:
            return status, vertex, record, 0

        # In ascending order, each successor once.
        out.sort()
        for i in range(1, degree):
            if out[i] == out[i - 1]:
                return _REPEATED, vertex, record, 0
        vertex += 1
    return _DONE, vertex, position, 0


def decode(data: np.ndarray, form: BVFormat, name: str) -> Iterator[np.ndarray]:
    """The arcs in the stream `data` (uint8), by chunks [2, k] of vertices over their successors, in order.

    Takes memory for a number per vertex, and for the lists of one chunk. Raises DataError, naming the vertex and the
    byte offset of its record in `name`, when the stream contradicts itself or `form`.
    """
    # A record has at least one bit.
    if form.vertices > 8 * len(data):
        raise DataError(f"{name}: {form.vertices:,} vertices are stated, but {len(data):,} bytes cannot hold as many")
    codes = np.array([form.outdegrees, form.references, form.block_counts, form.blocks, form.residuals], np.int64)
    sizes = (form.zeta, form.window, form.shortest_interval)
    indptr = np.zeros(form.vertices + 1, np.int64)
    indices = np.empty(min(form.arcs, 8 * len(data), _ARCS_AT_ONCE), index_dtype(form.vertices))

    # Decode until `indices` is full, yield what is complete, make room, go on.
    vertex = position = yielded = total = 0
    status = _GROW
    while status == _GROW:
        status, vertex, position, needed = _decode(data, position, vertex, codes, *sizes, indptr, indices)
        if vertex > yielded:
            total += int(indptr[vertex] - indptr[yielded])
            yield _arcs(yielded, indptr[yielded : vertex + 1], indices)
            yielded = vertex
        if status == _GROW:
            degree = int(needed - indptr[vertex])
            if total + degree > form.arcs:
                raise DataError(
                    f"{name}: vertex {vertex}, at byte {position // 8}: its {degree:,} successors are more than is "
                    f"left of the {form.arcs:,} arcs stated"
                )
            indices = _with_free_entries(indptr, indices, max(0, vertex - form.window), vertex, degree)

    # The stream must end where the properties say.
    if status != _DONE:
        raise DataError(f"{name}: vertex {vertex}, at byte {position // 8}: {_FAULTS[status]}")
    if total != form.arcs:
        raise DataError(f"{name}: {total:,} arcs were decoded, but {form.arcs:,} are stated")
    if data[(position + 7) // 8 :].any():
        raise DataError(f"{name}: the last vertex ends at byte {position // 8}, but more data follow")


def _arcs(first: int, bounds: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The arcs [2, k] of vertices first, first + 1, ..., whose lists lie between `bounds`."""
    vertex = np.repeat(np.arange(first, first + len(bounds) - 1, dtype=indices.dtype), np.diff(bounds))
    return np.stack([vertex, indices[bounds[0] : bounds[-1]]])


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
