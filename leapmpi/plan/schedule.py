"""Schedule of one iteration: which rank trains which roots at which time step, for which model.

Rank 0 broadcasts a schedule as one flat buffer. Every rank receives the roots of all, so a buffer has gaps between
ascending ids, in as few bytes as they need.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

_MAGIC = 0x6C656170_00000002
"""Mark of a buffer as a schedule of layout 2."""

_HEADER = 11
"""Words before the arrays: magic, checksum, epoch, iteration, ranks, time steps, roots, and bytes of each number."""

_NARROW = (np.uint8, np.uint16, np.uint32)
"""Types of numbers in a buffer, the narrowest first; int64 where none suffices."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """Roots sorted by cell. A cell holds the roots of one micro-batch: those of one rank in one time step.

    Cell number rank * time_steps + step belongs to `rank` at `step`; it may be empty.
    """

    epoch: int
    iteration: int
    ranks: int
    time_steps: int
    roots: np.ndarray
    """int64[batch_size]: renumbered ids, by rank, then step, then id."""
    cell_indptr: np.ndarray
    """int64[ranks * time_steps + 1]: first root of each cell in `roots`."""
    model: np.ndarray
    """int64[ranks * time_steps]: model, in [0, ranks), trained by each cell."""

    @property
    def batch_size(self) -> int:
        """Number of roots of the iteration, over all ranks."""
        return len(self.roots)

    def cell(self, rank: int, step: int) -> np.ndarray:
        """Return the roots that `rank` trains at `step`: int64, a view."""
        cell = self._cell(rank, step)
        return self.roots[self.cell_indptr[cell] : self.cell_indptr[cell + 1]]

    def rank_roots(self, rank: int) -> np.ndarray:
        """Return all roots that `rank` trains, step after step: int64, a view."""
        first = self._cell(rank, 0)
        last = self._cell(rank, self.time_steps - 1)
        return self.roots[self.cell_indptr[first] : self.cell_indptr[last + 1]]

    def is_local(self, rank_offsets: np.ndarray) -> bool:
        """Return whether every root is trained on its home rank; `rank_offsets` is int64[ranks + 1]."""
        filled, lowest, highest = self._extremes
        return bool(((lowest >= rank_offsets[filled]) & (highest < rank_offsets[filled + 1])).all())

    @cached_property
    def _extremes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ranks with roots, and the lowest and the highest root of each: int64[k]."""
        # All cells of a rank follow each other. In forecasts one schedule serves every rank.
        bounds = self.cell_indptr[:: self.time_steps]
        filled = np.flatnonzero(np.diff(bounds))
        if not len(filled):
            return filled, filled, filled
        starts = bounds[filled]
        return filled, np.minimum.reduceat(self.roots, starts), np.maximum.reduceat(self.roots, starts)

    def model_of(self, rank: int, step: int) -> int:
        """Return the model that `rank` trains at `step`."""
        return int(self.model[self._cell(rank, step)])

    def loads(self) -> np.ndarray:
        """Return the number of roots per rank and step: int64[ranks, time_steps]."""
        return np.diff(self.cell_indptr).reshape(self.ranks, self.time_steps)

    @property
    def nbytes(self) -> int:
        """Bytes of the result of `to_buffer`."""
        return self._buffer.nbytes

    def to_buffer(self) -> np.ndarray:
        """Return the schedule as one flat int64 array, for `from_buffer`."""
        return self._buffer

    @cached_property
    def _buffer(self) -> np.ndarray:
        if len(self.model) != self.ranks * self.time_steps or len(self.cell_indptr) != len(self.model) + 1:
            raise ValueError(f"a schedule of {self.ranks} x {self.time_steps} cells has a model and roots for each")
        # Roots ascend within a cell: its first root, and the gaps between the others, are small numbers.
        sizes = np.diff(self.cell_indptr)
        starts = self.cell_indptr[:-1][sizes > 0]
        starts = starts[(starts >= 0) & (starts < self.batch_size)]
        gaps = np.diff(self.roots, prepend=0)
        gaps[starts] = 0
        packed = [_narrowed(each) for each in (sizes, self.model, self.roots[starts], gaps)]
        header = [self.epoch, self.iteration, self.ranks, self.time_steps, self.batch_size]
        body = np.concatenate([np.array([*header, *(each.itemsize for each in packed)]), *map(_words, packed)])
        return np.concatenate([np.array([_MAGIC, zlib.crc32(body)], np.int64), body])

    @staticmethod
    def from_buffer(buffer: np.ndarray) -> Schedule:
        """Return the schedule in `buffer`.

        Raises ValueError unless the buffer is a complete, undamaged schedule.
        """
        # Check the frame before trusting any length in it.
        if buffer.dtype != np.int64 or buffer.ndim != 1 or len(buffer) < _HEADER or buffer[0] != _MAGIC:
            raise ValueError("this buffer does not hold a schedule")
        if zlib.crc32(np.ascontiguousarray(buffer[2:])) != buffer[1]:
            raise ValueError("the schedule in this buffer is damaged: its checksum does not fit")

        # The header gives the lengths of the arrays, and sizes say how many cells have a first root.
        epoch, iteration, ranks, time_steps, size, *widths = buffer[2:_HEADER].tolist()
        cells, place = ranks * time_steps, _HEADER
        wrong = ValueError(f"a schedule of {ranks} x {time_steps} cells and {size} roots has another length")
        if ranks < 1 or time_steps < 1 or size < 0:
            raise wrong
        found: list[np.ndarray] = []
        for width in widths:
            filled = int(np.count_nonzero(found[0])) if found else 0
            count = (cells, cells, filled, size)[len(found)]
            words = -(-count * width // 8)
            if place + words > len(buffer):
                raise wrong
            found.append(_widened(buffer[place : place + words], count, width))
            place += words
        sizes, model, firsts, gaps = found
        if place != len(buffer):
            raise wrong
        if sizes.min() < 0 or sizes.sum() != size:
            raise ValueError("the cells of a schedule must cover its roots in order")
        if model.min() < 0 or model.max() >= ranks:
            raise ValueError(f"a schedule names a model outside [0, {ranks})")

        # Sums of gaps start again at the first root of each cell.
        cell_indptr, sums = np.concatenate(([0], np.cumsum(sizes))), np.cumsum(gaps)
        begin, lengths = cell_indptr[:-1][sizes > 0], sizes[sizes > 0]
        roots = sums + np.repeat(firsts - sums[begin], lengths)
        return Schedule(epoch, iteration, ranks, time_steps, roots, cell_indptr, model)

    def _cell(self, rank: int, step: int) -> int:
        if not (0 <= rank < self.ranks and 0 <= step < self.time_steps):
            raise IndexError(f"no cell ({rank}, {step}) in {self.ranks} ranks x {self.time_steps} time steps")
        return rank * self.time_steps + step


def _narrowed(values: np.ndarray) -> np.ndarray:
    """Return `values` (int64[k]) in the narrowest type that holds them."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for dtype in _NARROW:
        if low >= 0 and high <= np.iinfo(dtype).max:
            return values.astype(dtype)
    return values


def _words(values: np.ndarray) -> np.ndarray:
    """Return the bytes of `values` as int64[words], filled up with zeros."""
    words = np.zeros(-(-values.nbytes // 8), np.int64)
    words.view(np.uint8)[: values.nbytes] = values.view(np.uint8)
    return words


def _widened(words: np.ndarray, count: int, width: int) -> np.ndarray:
    """Return the first `count` numbers of `width` bytes in `words`: int64[count]."""
    dtype = next((each for each in _NARROW if np.dtype(each).itemsize == width), np.int64)
    return np.ascontiguousarray(words).view(dtype)[:count].astype(np.int64)
