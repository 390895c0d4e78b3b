"""Schedules as flat buffers: the whole, or for each rank the cells that it reads.

Roots ascend within a cell. A buffer has the first root of each cell and the gaps between the others, in as few bytes
as they need. Buffers for all ranks are made together, by operations on arrays.
"""

from __future__ import annotations

import zlib

import numpy as np

from leapmpi.plan.schedule import Held, Schedule
from leapmpi.sampling.block import indptr_of

_MAGIC = 0x6C656170_00000003
"""Mark of a buffer as a schedule of layout 3."""

_HEADER = 8
"""Words before the arrays: magic, length and checksum, epoch, iteration, ranks, time steps, roots, and form."""

_NARROW = (np.uint8, np.uint16, np.uint32)
"""Types of numbers in a buffer, the narrowest first; int64 where none suffices."""

_LISTS = 4
"""Lists of numbers in a buffer: sizes of cells, models, first roots of cells that have some, and gaps."""


def whole_buffer(schedule: Schedule) -> np.ndarray:
    """Return all of `schedule` as one flat int64 array, for `schedule_of`."""
    _check(schedule)
    (rows, _) = _rows(schedule, np.arange(schedule.ranks)[None, :], np.empty((1, 0), np.int64), False)
    return rows[0]


def part_buffers(schedule: Schedule, read: np.ndarray, rank_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a buffer for each rank, int64[ranks, words], filled up with zeros, and int64[ranks]: words of each.

    read: int64[ranks, k], the ranks whose cells each rank reads, at most 255. rank_offsets: int64[ranks + 1].
    """
    _check(schedule)
    return _rows(schedule, read, read, schedule.is_local(rank_offsets))


def words_of(buffer: np.ndarray) -> int:
    """Return how many words of `buffer` (int64, longer perhaps) the schedule at its beginning takes."""
    return int(buffer[1] >> 32)


def schedule_of(buffer: np.ndarray) -> Schedule:
    """Return the schedule in `buffer`, whole or a part.

    Raises ValueError unless the buffer is a complete, undamaged schedule.
    """
    # Check the frame before trusting any length in it.
    if buffer.dtype != np.int64 or buffer.ndim != 1 or len(buffer) < _HEADER or buffer[0] != _MAGIC:
        raise ValueError("this buffer does not hold a schedule")
    if words_of(buffer) != len(buffer) or zlib.crc32(np.ascontiguousarray(buffer[2:])) != buffer[1] & 0xFFFFFFFF:
        raise ValueError("the schedule in this buffer is damaged: its checksum does not fit")

    # The header gives the lengths of the lists, and sizes say how many cells have a first root.
    epoch, iteration, ranks, time_steps, size = buffer[2 : _HEADER - 1].tolist()
    *widths, local, named = buffer[_HEADER - 1 : _HEADER].view(np.uint8)[: _LISTS + 2].tolist()
    wrong = ValueError(f"a schedule of {ranks} x {time_steps} cells and {size} roots has another length")
    if ranks < 1 or time_steps < 1 or size < 0 or _HEADER + named > len(buffer):
        raise wrong
    found: list[np.ndarray] = []
    cells, place = (named or ranks) * time_steps, _HEADER + named
    for width in widths:
        filled, total = (int(np.count_nonzero(found[0])), int(found[0].sum())) if found else (0, 0)
        count = (cells, cells, filled, total)[len(found)]
        words = -(-count * width // 8)
        if place + words > len(buffer):
            raise wrong
        found.append(_widened(buffer[place : place + words], count, width))
        place += words
    sizes, model, firsts, gaps = found
    if place != len(buffer):
        raise wrong
    if sizes.min() < 0 or (sizes.sum() > size if named else sizes.sum() != size):
        raise ValueError("the cells of a schedule must cover its roots in order")
    if model.min() < 0 or model.max() >= ranks:
        raise ValueError(f"a schedule names a model outside [0, {ranks})")

    # Sums of gaps start again at the first root of each cell.
    cell_indptr, sums = indptr_of(sizes), np.cumsum(gaps)
    begin, lengths = cell_indptr[:-1][sizes > 0], sizes[sizes > 0]
    roots = sums + np.repeat(firsts - sums[begin], lengths)
    held = Held(tuple(buffer[_HEADER : _HEADER + named].tolist()), size, bool(local)) if named else None
    return Schedule(epoch, iteration, ranks, time_steps, roots, cell_indptr, model, held)


def _check(schedule: Schedule) -> None:
    cells = schedule.ranks * schedule.time_steps
    if len(schedule.model) != cells or len(schedule.cell_indptr) != cells + 1:
        raise ValueError(f"a schedule of {schedule.ranks} x {schedule.time_steps} cells has a model and roots for each")


def _rows(schedule: Schedule, read: np.ndarray, named: np.ndarray, local: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return int64[k, words]: row i has the cells of the ranks `read[i]`, after the numbers `named[i]`; and int64[k]:
    the words of each, without the zeros at its end."""
    steps, indptr = schedule.time_steps, schedule.cell_indptr
    cells = (read[:, :, None] * steps + np.arange(steps)).reshape(len(read), -1)
    sizes = np.diff(indptr)
    # A first root of a cell, and the gap before it, which is none.
    starts = indptr[:-1][sizes > 0]
    starts = starts[(starts >= 0) & (starts < len(schedule.roots))]
    gaps = np.diff(schedule.roots, prepend=0)
    gaps[starts] = 0
    firsts = np.zeros(len(sizes), np.int64)
    firsts[np.flatnonzero(sizes > 0)[: len(starts)]] = schedule.roots[starts]

    # Lists of all rows, one row after the other, with the numbers of each row.
    of_row, filled = sizes[cells], sizes[cells] > 0
    counts = np.full(len(cells), cells.shape[1])
    lists = [
        (of_row.reshape(-1), counts),
        (schedule.model[cells].reshape(-1), counts),
        (firsts[cells[filled]], filled.sum(axis=1)),
        (gaps[_ranges(indptr[cells].reshape(-1), of_row.reshape(-1))], np.maximum(of_row, 0).sum(axis=1)),
    ]
    packed = [(_narrowed(values), lengths) for values, lengths in lists]
    words = np.array([-(-lengths * each.itemsize // 8) for each, lengths in packed])
    places = _HEADER + named.shape[1] + np.concatenate([np.zeros_like(words[:1]), np.cumsum(words, axis=0)])
    rows = np.zeros((len(cells), int(places[-1].max())), np.int64)
    flat = rows.reshape(-1).view(np.uint8)
    for (values, lengths), place in zip(packed, places[:-1], strict=True):
        begins = 8 * (np.arange(len(rows)) * rows.shape[1] + place)
        flat[_ranges(begins, lengths * values.itemsize)] = values.view(np.uint8)

    form = np.zeros(8, np.uint8)
    form[: _LISTS + 2] = [*(values.itemsize for values, _ in packed), local, named.shape[1]]
    size = len(schedule.roots)
    rows[:, 2 : _HEADER - 1] = schedule.epoch, schedule.iteration, schedule.ranks, steps, size
    rows[:, _HEADER - 1] = form.view(np.int64)[0]
    rows[:, _HEADER : _HEADER + named.shape[1]] = named
    rows[:, 0] = _MAGIC
    of_words = places[-1]
    checks = [zlib.crc32(row[2:end]) for row, end in zip(rows, of_words.tolist(), strict=True)]
    rows[:, 1] = (of_words << 32) | np.array(checks, np.int64)
    return rows, of_words


def _ranges(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the numbers from begins[i] on, lengths[i] of them, for one i after the other: int64[n]."""
    lengths = np.maximum(lengths, 0)
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(begins - (ends - lengths), lengths)


def _narrowed(values: np.ndarray) -> np.ndarray:
    """Return `values` (int64[k]) in the narrowest type that holds them."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for dtype in _NARROW:
        if low >= 0 and high <= np.iinfo(dtype).max:
            return values.astype(dtype)
    return values


def _widened(words: np.ndarray, count: int, width: int) -> np.ndarray:
    """Return the first `count` numbers of `width` bytes in `words`: int64[count]."""
    dtype = next((each for each in _NARROW if np.dtype(each).itemsize == width), np.int64)
    return np.ascontiguousarray(words).view(dtype)[:count].astype(np.int64)
