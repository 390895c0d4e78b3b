"""Edge lists in text, read by blocks: plain lines by a compiled scanner, blocks with any other line by numpy."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_prep.edges.edge_stream import EdgeStream
from data_prep.formats.integer_lines import scanned, whole_lines
from data_prep.formats.numeric_text import COMMENTS, DELIMITERS, Layout, find_layout, open_bytes, parsed
from leapmpi.errors import DataError

_KIND = "vertex id; ids are whole numbers from 0 on"
_FIRST_LINES = 100
_MOST = 0.75
_LONGEST_LINE = 1 << 16
_WHOLE = re.compile(r"[+-]?\d+")


def begins_with_edges(path: Path) -> bool:
    """Whether most of what the first lines of `path` begin with are two whole numbers; a line of names may precede.

    Raises DataError when the file is not valid gzip.
    """
    rows = [text for _, text in _first_rows(path)]
    delimiter = next((mark for mark in DELIMITERS if rows and mark in rows[0]), None)
    found = [sum(map(_is_whole, row.split(delimiter)[:2])) for row in rows]
    if found and found[0] < 2:
        del found[0]
    return bool(found) and sum(found) >= _MOST * 2 * len(found)


def first_line(path: Path) -> str:
    """How messages show the first line of content of `path` that does not begin with two whole numbers."""
    rows = _first_rows(path)
    number, text = next((row for row in rows if not _is_whole(re.split(r"[\s,;]", row[1])[0])), rows[0])
    return f"line {number}: {text[:60]!r}"


def _first_rows(path: Path) -> list[tuple[int, str]]:
    """The first lines of content of `path`, and their numbers; comments are left out."""
    rows: list[tuple[int, str]] = []
    number = 0
    with open_bytes(path) as file:
        while len(rows) < _FIRST_LINES and (line := file.readline(_LONGEST_LINE)):
            number += 1
            text = line.decode("utf-8-sig", "replace").strip()
            if text and text[0] not in COMMENTS:
                rows.append((number, text))
    return rows


def _is_whole(field: str) -> bool:
    return _WHOLE.fullmatch(field.strip()) is not None


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
    notes = []
    if layout.header:
        notes.append(f"{path.name}: the first line, {layout.header[:40]!r}, was taken as a header")
    if layout.columns > 2:
        notes.append(f"{path.name}: only the first two of {layout.columns} columns are used")
    return EdgeStream(lambda: _chunks(path, layout)), notes


def _chunks(path: Path, layout: Layout) -> Iterator[np.ndarray]:
    """The edges int64[2, k] by blocks of lines. Raises DataError where there are none."""
    delimiter = ord(layout.delimiter) if layout.delimiter else 0
    rows = 0
    for text in whole_lines(path, layout.lines_before):
        content = text.removeprefix(codecs.BOM_UTF8) if rows == 0 else text
        values, lengths, fault = scanned(content, 2, delimiter)
        # Numpy reads all that is allowed, and names what is not.
        plain = fault < 0 and not (lengths == 1).any()
        chunk = values.reshape(-1, 2).T if plain else _parsed_by_numpy(path, content, layout, rows)
        rows += chunk.shape[1]
        yield chunk
    if rows == 0:
        raise DataError(f"{path} holds no edges")


def _parsed_by_numpy(path: Path, text: bytes, layout: Layout, rows_before: int) -> np.ndarray:
    try:
        lines = io.StringIO(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error.reason} at byte {error.start})") from error
    return parsed(path, lines, layout, np.int64, _KIND, rows_before, (0, 1)).T
