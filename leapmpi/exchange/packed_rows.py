"""Rows packed for their way between ranks: without columns that nobody reads, and without zeros.

Dropout masks are functions of vertex and column (rule R1), so both sides of an exchange know which columns the reader
drops: these never travel. Zeros of other columns, frequent behind ReLU, need not travel either: a bit for each number
marks those that follow. On the slowest links exponents take three bits. Rows are packed in pieces of one message each,
and each piece takes the shortest form. Every bit of a number that is read arrives; a negative zero is sent like any
other number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.comm.flow_control import FRAGMENT
from leapmpi.exchange.context import Packing
from leapmpi.exchange.read_columns import Kept
from leapmpi.exchange.short_exponents import lengthened, shortened
from leapmpi.system.jit import compiled

PIECE = FRAGMENT
"""The most bytes of a piece, which is one message."""

_PACKING_LINK = 1e-9
"""Seconds a byte from which packing pays: it takes about 0.7e-9 for each byte of whole rows on both sides, and saves
half of the bytes or more. Measured with one thread on 12,000 rows of 32 numbers."""

_SHORTENING_LINK = 2e-8
"""Seconds a byte from which exponents are shortened: 2.9e-9 s a number on both sides save 0.6 bytes of it. So links of
5e-9 would gain too, but most jobs there wait for processors."""

_WORDS = {4: np.uint32, 8: np.uint64}
"""The unsigned integers by which numbers are packed, by their size in bytes."""


@compiled
def _kept_numbers(rows, kept, out):
    """Write the numbers of `rows` (unsigned[n, width]) that are kept to `out`, one after the other."""
    count, width = np.uint64(0), rows.shape[1]  # unsigned: an index that is never negative costs no check
    for i in range(len(rows)):
        for column in range(width):
            out[count] = rows[i, column]
            count += np.uint64(kept[i, column])


@compiled
def _without_zeros(numbers, count, out):
    """Write a bit for each of the first `count` numbers, then those that are not zero; return the words taken.

    All numbers are written unchanged where that is not longer.
    """
    # A message as long as `count` words is one without heads: its length tells the receiver its form.
    lanes = 8 * out.itemsize
    nonzero = 0
    for k in range(count):
        nonzero += numbers[k] != 0
    heads = (count + lanes - 1) // lanes
    if heads + nonzero >= count:
        out[:count] = numbers[:count]
        return count
    place = np.uint64(heads)
    for head in range(heads):
        first = head * lanes
        word = np.uint64(0)
        for k in range(first, min(first + lanes, count)):
            found = np.uint64(numbers[k] != 0)
            # Written always, kept if not zero: no branch to mispredict.
            out[place] = numbers[k]
            place += found
            word |= found << np.uint64(k - first)
        out[head] = word
    return np.int64(place)


@compiled
def _with_zeros(words, count, out):
    """Reverse `_without_zeros`: write the first `count` numbers to `out`."""
    if len(words) == count:
        out[:count] = words
        return
    lanes = 8 * words.itemsize
    heads = (count + lanes - 1) // lanes
    place, last = np.uint64(heads), np.uint64(len(words) - 1)
    for head in range(heads):
        bits, first = np.uint64(words[head]), head * lanes
        for k in range(first, min(first + lanes, count)):
            # No branch: it would be mispredicted every other time.
            bit = bits & np.uint64(1)
            out[k] = words[min(place, last)] * words.dtype.type(bit)
            place += bit
            bits >>= np.uint64(1)


@compiled
def _spread(numbers, kept, rows):
    """Reverse `_kept_numbers`: write the numbers to `rows`, and zeros elsewhere."""
    count, width = np.uint64(0), rows.shape[1]
    for i in range(len(rows)):
        for column in range(width):
            rows[i, column] = numbers[count] * numbers.dtype.type(kept[i, column])
            count += np.uint64(kept[i, column])


def packing(byte: float, nodes: int) -> Packing:
    """Return how rows travel between `nodes`, over links that take `byte` seconds a byte."""
    if nodes == 1 or byte < _PACKING_LINK:
        return Packing.NONE
    return Packing.SHORT_EXPONENTS if byte >= _SHORTENING_LINK else Packing.WITHOUT_ZEROS


class RowPacking:
    """The packing of rows of `width` numbers of `dtype` (float32 or float64) from one rank to another, in pieces.

    kept: uint8[rows, width], 1 for numbers that are read; None for all. Both ranks know the same. shortens: whether a
    piece may have short exponents, for the sender alone.
    """

    def __init__(self, rows: int, width: int, dtype: np.dtype, kept: np.ndarray | None, shortens: bool = False) -> None:
        self.word, self.kept = np.dtype(_WORDS[dtype.itemsize]), kept
        self.shortens = shortens and dtype == np.float32
        step = max(1, PIECE // (width * dtype.itemsize))
        firsts = range(0, rows, step)
        ends = [min(first + step, rows) for first in firsts]
        if kept is None:
            counts = [(end - first) * width for first, end in zip(firsts, ends, strict=True)]
        else:
            counts = [int(np.count_nonzero(kept[first:end])) for first, end in zip(firsts, ends, strict=True)]
        # A piece without numbers is no message.
        self.pieces = [each for each in zip(firsts, ends, counts, strict=True) if each[2]]
        """For each piece its first row, the row after its last, and the number of kept numbers, at least one."""

    @property
    def rooms(self) -> list[int]:
        """Most bytes of each piece."""
        return [count * self.word.itemsize for _, _, count in self.pieces]

    def pack(self, rows: np.ndarray) -> list[np.ndarray]:
        """Return the pieces of `rows` (float[rows, width]), uint8[k] each."""
        words, packed = rows.view(self.word), []
        for first, end, count in self.pieces:
            numbers = words[first:end].reshape(-1)
            if self.kept is not None:
                # One spare place: the kernel writes before it counts.
                numbers = np.empty(count + 1, self.word)
                _kept_numbers(words[first:end], self.kept[first:end], numbers)
            piece = np.empty(count + 1, self.word)
            piece = piece[: _without_zeros(numbers, count, piece)]
            packed.append(shortened(piece, count) if self.shortens else piece.view(np.uint8))
        return packed

    def unpack(self, pieces: Sequence[np.ndarray], rows: np.ndarray) -> None:
        """Fill `rows` (float[rows, width]), which are zero, from `pieces`."""
        words = rows.view(self.word)
        for (first, end, count), packed in zip(self.pieces, pieces, strict=True):
            piece = lengthened(packed, count).view(self.word)
            if self.kept is None:
                _with_zeros(piece, count, words[first:end].reshape(-1))
                continue
            # One spare place: the kernel reads before it counts.
            numbers = np.empty(count + 1, self.word)
            _with_zeros(piece, count, numbers)
            _spread(numbers, self.kept[first:end], words[first:end])


def fits(width: int, itemsize: int) -> bool:
    """Return whether a row of `width` numbers of `itemsize` bytes fits a piece."""
    return width * itemsize <= PIECE


def start_packed(
    communicator: Communicator,
    rows: np.ndarray,
    counts: np.ndarray,
    arriving_counts: np.ndarray,
    kept: Kept,
    shortens: bool = False,
) -> Callable[[], np.ndarray]:
    """Begin to send `rows` (float[sent, width], by rank as `counts` says), packed; the result waits for the others'.

    counts, arriving_counts: int64[ranks], none for this rank itself. shortens: whether exponents may be short. The
    result is float[arriving, width]; numbers that are not `kept` are zero. Collective.
    """
    width = rows.shape[1]

    def packings(counts: np.ndarray, kept: np.ndarray | None) -> list[tuple[slice, RowPacking]]:
        ends = np.cumsum(counts).tolist()
        parts = [slice(end - count, end) for end, count in zip(ends, counts.tolist(), strict=True)]
        return [
            (
                part,
                RowPacking(part.stop - part.start, width, rows.dtype, None if kept is None else kept[part], shortens),
            )
            for part in parts
        ]

    # Both ends cut rows into the same pieces, so a receiver knows how many messages come and the size of each at most.
    leaving, arriving = packings(counts, kept[0]), packings(arriving_counts, kept[1])
    pieces = [packing.pack(rows[part]) for part, packing in leaving]
    end = communicator.start_pieces(pieces, [packing.rooms for _, packing in arriving], "activations")

    def finish() -> np.ndarray:
        found = np.zeros((int(arriving_counts.sum()), width), rows.dtype)
        for (part, packing), each in zip(arriving, end(), strict=True):
            packing.unpack(each, found[part])
        return found

    return finish
