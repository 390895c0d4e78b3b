"""Edge lists in text, read by blocks: plain lines by a compiled scanner, blocks with any other line by numpy."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_prep.edges.edge_stream import EdgeStream
from data_prep.formats.integer_lines import scanned, whole_lines
from data_prep.formats.numeric_text import Layout, find_layout, parsed
from leapmpi.errors import DataError

_KIND = "vertex id; ids are whole numbers from 0 on"


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
