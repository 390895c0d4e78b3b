"""Lines of whole numbers in text, of any number per line: read in blocks by a compiled scanner, with line numbers.

Numbers are separated by blanks or tabs; lines that begin with # or % are comments. For graphs of many edges, where
`numeric_text` would take minutes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from data_prep.formats.numeric_text import open_bytes
from leapmpi.errors import DataError, counted
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import in_order

COMMENT = -1
_BLOCK_BYTES = 4 * 2**20
_MOST_DIGITS = 18
_ALL = 2**62
_COMMENT_LINE = re.compile(rb"^[ \t\r]*[%#]", re.MULTILINE)


@dataclass(frozen=True)
class LineBlock:
    """Some whole lines: all numbers in `values` int64[k], how many each line has in `lengths` int32, or COMMENT.

    Where only the first columns are read, `values` holds those, but `lengths` counts all words of a line.
    first_line: the number of the first line in the file, counted from 1. text: the lines themselves.
    """

    values: np.ndarray
    lengths: np.ndarray
    first_line: int
    text: bytes = b""


@compiled
def _byte(data, i):
    """Return byte `i`; a line ends where the data do."""
    return data[i] if i < len(data) else np.uint8(10)


@compiled
def _is_blank(byte, delimiter):
    return byte == 32 or byte == 13 or (byte == 9 and delimiter != 9)


@compiled
def _scan(data, columns, delimiter, values, lengths):
    """Read all of `data` into `values` and `lengths`; return both counts, and the place of a bad word (or -1).

    Of each line, the first `columns` words must be numbers; the others are only counted. delimiter: the byte between
    words, 0 for blanks. Bytes: 10 ends a line, 9 is a tab, 13 a carriage return, 32 a blank, 35 #, 37 %, 43 a plus,
    45 a minus, 48 to 57 digits.
    """
    i, count, lines = 0, 0, 0
    while i < len(data):
        words = 0
        while True:
            byte = _byte(data, i)
            while _is_blank(byte, delimiter):
                i += 1
                byte = _byte(data, i)
            # A comment takes the rest of the line.
            if words == 0 and (byte == 35 or byte == 37):
                words = -1
                while _byte(data, i) != 10:
                    i += 1
                break
            if byte == 10:
                break

            # A word: a sign, digits, and the end of the word.
            start, number, digits = i, np.int64(0), 0
            negative = byte == 45
            if negative or byte == 43:
                i += 1
                byte = _byte(data, i)
            while 48 <= byte <= 57 and digits <= _MOST_DIGITS:
                number = number * 10 + (np.int64(byte) - 48)
                digits += 1
                i += 1
                byte = _byte(data, i)
            end = i
            while _is_blank(byte, delimiter):
                i += 1
                byte = _byte(data, i)
            whole = byte == 10 or (byte == delimiter if delimiter else i > end)
            if words < columns:
                if not whole or digits == 0 or digits > _MOST_DIGITS:
                    return count, lines, start
                values[count] = -number if negative else number
                count += 1

            # Skip the rest of a word that is only counted, and what separates it from the next.
            while not whole:
                i += 1
                byte = _byte(data, i)
                whole = byte == 10 or (byte == delimiter if delimiter else _is_blank(byte, delimiter))
            if delimiter and byte == delimiter:
                i += 1
            words += 1
        lengths[lines] = words
        lines += 1
        i += 1
    return count, lines, -1


@compiled
def _scan_pairs(data, delimiter, values, lengths):
    """Read lines of exactly two numbers without sign, one byte between them, as far as such lines go.

    Returns the lines, and the place where they end: that of a line of another form, or the end. Most files have no
    other lines, and this takes a third of the time of `_scan`.
    """
    lines, i = 0, 0
    # The end of the last line ends every loop.
    size = len(data)
    while size > 0 and data[size - 1] != 10:
        size -= 1
    while i < size:
        start = i
        for column in range(2):
            first, number = i, np.int64(0)
            # Without a sign, bytes below "0" wrap around, so that one comparison finds a digit.
            digit = data[i] - np.uint8(48)
            while digit < 10:
                number = number * 10 + np.int64(digit)
                i += 1
                digit = data[i] - np.uint8(48)
            if i == first or i - first > _MOST_DIGITS:
                return lines, start
            values[2 * lines + column] = number
            if column == 0:
                if data[i] != delimiter and not (delimiter == 0 and (data[i] == 32 or data[i] == 9)):
                    return lines, start
                i += 1
        # Lines of Windows end by two bytes.
        if data[i] == 13:
            i += 1
        if data[i] != 10:
            return lines, start
        i += 1
        lengths[lines] = 2
        lines += 1
    return lines, i


def scanned(text: bytes, columns: int, delimiter: int = 0) -> tuple[np.ndarray, np.ndarray, int]:
    """Scan `text` for the numbers int64[k] in its first `columns` columns, and the words of each line, as of LineBlock.

    Also returns the place of the first word that is not a number, and ends there; -1 where there is none. delimiter:
    the byte between words, 0 for blanks.
    """
    lengths = np.empty(text.count(b"\n") + 1, np.int32)
    values = np.empty(min(len(text) // 2 + 2, columns * len(lengths)), np.int64)
    data = np.frombuffer(text, np.uint8)
    plain, begin = _scan_pairs(data, delimiter, values, lengths) if columns == 2 else (0, 0)
    count, lines, fault = _scan(data[begin:], columns, delimiter, values[2 * plain :], lengths[plain:])
    return values[: 2 * plain + count], lengths[: plain + lines], fault if fault < 0 else begin + fault


def whole_lines(path: Path, skip: int, share: tuple[int, int] = (0, 1)) -> Iterator[bytes]:
    """Yield the content of the file `path` (unpacked if .gz) after the first `skip` lines, in blocks of whole lines.

    share: (i, n), the lines that begin in the i-th of n ranges of equal size; others than (0, 1) of plain files alone.
    """
    rest: list[bytes] = []  # of a line whose end is not read yet
    with open_bytes(path) as file:
        for _ in range(skip):
            file.readline()
        left = None if share == (0, 1) else _seek(file, share)
        while chunk := file.read(_BLOCK_BYTES if left is None else min(left, _BLOCK_BYTES)):
            left = None if left is None else left - len(chunk)
            cut = chunk.rfind(b"\n") + 1
            if cut:
                yield b"".join([*rest, chunk[:cut]])
                rest = []
            rest.append(chunk[cut:])
        # The last line of a range ends in the next.
        if left is not None and any(rest):
            rest.append(file.readline())
    if any(rest):
        yield b"".join(rest)


def lines_with_content(path: Path, skip: int, share: tuple[int, int]) -> int:
    """Count the lines of a share that are no comments, empty ones too; arguments are those of `whole_lines`."""

    def counted(text: bytes) -> int:
        lines = text.count(b"\n") + (not text.endswith(b"\n"))
        return lines - len(_COMMENT_LINE.findall(text)) if b"%" in text or b"#" in text else lines

    return sum(in_order(counted, whole_lines(path, skip, share)))


def _seek(file: BinaryIO, share: tuple[int, int]) -> int:
    """Find the first line that begins in the `share` of what is left of `file`; returns the bytes up to its end."""
    begin, end = file.tell(), file.seek(0, io.SEEK_END)
    low, high = (begin + (end - begin) * at // share[1] for at in (share[0], share[0] + 1))
    file.seek(max(low - 1, begin))
    if low > begin:
        file.readline()
    return max(0, high - file.tell())


def blocks(path: Path, *, columns: int = _ALL, skip: int = 0, share: tuple[int, int] = (0, 1)) -> Iterator[LineBlock]:
    """Yield lines of the file `path` (unpacked if .gz) after the first `skip`: their first `columns` numbers.

    share: as in `whole_lines`; numbers of lines then count from the first of the share.

    Raises DataError naming file, line and text for the first word there that is not a whole number.
    """
    line = skip + 1
    for text, (values, lengths, fault) in in_order(
        lambda text: (text, scanned(text, columns)), whole_lines(path, skip, share)
    ):
        if fault >= 0:
            word = text[fault : fault + 60].split()[0].decode("utf-8", "backslashreplace")
            raise DataError(f"{path}, line {line + len(lengths)}: {word!r} is not a whole number")
        yield LineBlock(values.copy(), lengths.copy(), line, text)
        line += len(lengths)


def read_pairs(
    path: Path,
    *,
    skip: int = 0,
    words: range = range(2, _ALL),
    kind: str = "two vertex ids",
    share: tuple[int, int] = (0, 1),
) -> Iterator[tuple[np.ndarray, np.ndarray, LineBlock]]:
    """Yield by blocks the first two numbers [k, 2] of each line that has any, and the numbers of these lines int64[k].

    And the lines themselves. share: as in `blocks`.

    Raises DataError as `blocks`, and for a line whose number of words is not among `words`, which are for `kind`.
    """
    for block in blocks(path, columns=2, skip=skip, share=share):
        wrong = (block.lengths > 0) & ((block.lengths < words.start) | (block.lengths >= words.stop))
        if wrong.any():
            line = int(np.argmax(wrong))
            raise DataError(
                f"{path}, line {block.first_line + line}: {counted(block.lengths[line], 'field')}; expected {kind} "
                "per line"
            )
        filled = np.flatnonzero(block.lengths > 0)
        yield block.values.reshape(-1, 2), block.first_line + filled, block


def third_numbers(path: Path, block: LineBlock) -> np.ndarray:
    """Read the third number of each line that has words: float64[k]. Raises DataError naming the line of a bad one."""
    values, _, fault = scanned(block.text, 3)
    if fault < 0:
        return values.reshape(-1, 3)[:, 2].astype(np.float64)
    lines, filled = block.text.splitlines(), np.flatnonzero(block.lengths > 0)
    try:
        return np.array([lines[line].split()[2] for line in filled]).astype(np.float64)
    except (ValueError, UnicodeDecodeError):
        for line in filled:
            word = lines[line].split()[2]
            try:
                float(word)
            except ValueError:
                shown = word[:40].decode("utf-8", "backslashreplace")
                raise DataError(f"{path}, line {block.first_line + line}: {shown!r} is not a number") from None
        raise


def check_between(numbers: np.ndarray, lines: np.ndarray, low: int, high: int, path: Path) -> None:
    """Raise DataError naming the line of the first of `numbers` [k] or [k, 2] outside `low` ... `high`.

    lines: the line of each row of `numbers`.
    """
    bad = (numbers < low) | (numbers > high)
    if bad.any():
        place = np.unravel_index(int(np.argmax(bad)), numbers.shape)
        raise DataError(f"{path}, line {lines[place[0]]}: vertex {numbers[place]} is outside {low} ... {high}")
