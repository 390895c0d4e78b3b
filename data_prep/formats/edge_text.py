"""Edge lists in text, read by blocks: plain lines by a compiled scanner, blocks with any other line by numpy."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_prep.edges.edge_stream import EdgeStream
from data_prep.formats.integer_lines import whole_lines
from data_prep.formats.numeric_text import Layout, explained, find_layout, open_bytes, parsed
from leapmpi.errors import DataError
from leapmpi.system.jit import compiled

_MOST_DIGITS = 18
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KIND = "vertex id; ids are whole numbers from 0 on"


@compiled
def _scan_pairs(data, delimiter, out):
    """Write the first two numbers of each line to `out` [2, k]; returns how many lines, or -1 where one is not plain.

    delimiter: the byte between fields, 0 for blanks. Empty lines and comments, which begin with # or %, are skipped.
    Bytes: 10 ends a line, 9 is a tab, 13 a carriage return, 32 a blank, 35 #, 37 %, 45 a minus, 48 to 57 digits.
    """
    size, i, found = len(data), 0, 0
    while i < size:
        # Skip comments and empty lines.
        if data[i] == 35 or data[i] == 37:
            while i < size and data[i] != 10:
                i += 1
            i += 1
            continue
        if data[i] == 10:
            i += 1
            continue

        # Two numbers, with what separates them.
        for column in range(2):
            while i < size and data[i] == 32:
                i += 1
            number, digits = np.int64(0), 0
            negative = i < size and data[i] == 45
            if negative:
                i += 1
            while i < size and 48 <= data[i] <= 57 and digits <= _MOST_DIGITS:
                number = number * 10 + (np.int64(data[i]) - 48)
                digits += 1
                i += 1
            if digits == 0 or digits > _MOST_DIGITS:
                return -1
            out[column, found] = -number if negative else number
            blanks = 0
            while i < size and (data[i] == 32 or data[i] == 13 or (data[i] == 9 and delimiter != 9)):
                blanks += 1
                i += 1
            ends = i == size or data[i] == 10
            separated = blanks > 0 if delimiter == 0 else (i < size and data[i] == delimiter)
            if column == 0:
                if ends or not separated:
                    return -1
                if delimiter != 0:
                    i += 1
            elif not (ends or separated):
                return -1
        found += 1

        # Skip further columns.
        while i < size and data[i] != 10:
            i += 1
        i += 1
    return found


def edge_stream(path: Path) -> tuple[EdgeStream, list[str]]:
    """The edges in the first two columns of the table at `path`, and notes on what was skipped.

    Raises DataError, later also from the stream, naming file, row and text when a field is not a whole number, or
    when there are no edges.
    """
    layout = find_layout(path)
    if layout is None:
        raise DataError(f"{path} holds no edges")
    if layout.columns < 2:
        raise DataError(f"{path}: its first line has one field; an edge list needs two vertex ids per line")
    # What the user should know about the file.
    notes = []
    if layout.header:
        notes.append(f"{path.name}: the first line, {layout.header[:40]!r}, was taken as a header")
    if layout.columns > 2:
        notes.append(f"{path.name}: only the first two of {layout.columns} columns are used")
    return EdgeStream(lambda: _chunks(path, layout)), notes


def read_edges(path: Path) -> tuple[np.ndarray, list[str]]:
    """As `edge_stream`, with all edges in one array int64[2, E]."""
    stream, notes = edge_stream(path)
    return np.concatenate(list(stream.chunks()), axis=1), notes


def _chunks(path: Path, layout: Layout) -> Iterator[np.ndarray]:
    """The edges int64[2, k] by blocks of lines. Raises DataError where there are none."""
    delimiter = ord(layout.delimiter) if layout.delimiter else 0
    rows = 0
    with open_bytes(path) as file:
        for _ in range(layout.lines_before):
            file.readline()
        for text in whole_lines(file):
            # A block of whole lines; a line that is not plain sends the block to numpy.
            data = np.frombuffer(text, np.uint8)
            if rows == 0 and text.startswith(_BYTE_ORDER_MARK):
                data = data[len(_BYTE_ORDER_MARK) :]
            out = np.empty((2, text.count(b"\n") + 1), np.int64)
            found = _scan_pairs(data, delimiter, out)
            chunk = out[:, :found] if found >= 0 else _parsed_by_numpy(path, bytes(data), layout, rows)
            rows += chunk.shape[1]
            yield chunk
    if rows == 0:
        raise DataError(f"{path} holds no edges")


def _parsed_by_numpy(path: Path, text: bytes, layout: Layout, rows_before: int) -> np.ndarray:
    """The edges of some lines by numpy, which reads all that is allowed and names what is not."""
    try:
        return parsed(io.StringIO(text.decode("utf-8")), layout, np.int64, (0, 1)).T
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error.reason} at byte {error.start})") from error
    except (ValueError, DeprecationWarning) as error:
        raise explained(path, error, _KIND, rows_before) from error
