"""Edge lists in text, read by blocks: plain lines by a compiled scanner, blocks with any other line by numpy."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from data_prep.edges.edge_records import Chunk
from data_prep.edges.edge_stream import EdgeStream, ReadShare, shares_of
from data_prep.formats.columns import EdgeColumns, edge_columns, numbered
from data_prep.formats.integer_lines import scanned, whole_lines
from data_prep.formats.numeric_text import COMMENTS, DELIMITERS, Layout, find_layout, open_bytes, parsed
from leapmpi.errors import DataError
from leapmpi.system.worker_threads import in_order

_KIND = "vertex id; ids are whole numbers from 0 on"
_FIRST_LINES = 100
_MOST = 0.75
_LONGEST_LINE = 1 << 16
_WHOLE = re.compile(r"[+-]?\d+")


def begins_with_edges(path: Path) -> bool:
    """Return whether most first lines of `path` begin with two whole numbers; a line of names may precede.

    Raises DataError when the file is not valid gzip.
    """
    rows = [text for _, text in _first_rows(path)]
    delimiter = next((mark for mark in DELIMITERS if rows and mark in rows[0]), None)
    found = [sum(map(_is_whole, row.split(delimiter)[:2])) for row in rows]
    if found and found[0] < 2:
        del found[0]
    return bool(found) and sum(found) >= _MOST * 2 * len(found)


def first_line(path: Path) -> str:
    """Quote the first line of content of `path` that does not begin with two whole numbers."""
    rows = _first_rows(path)
    number, text = next((row for row in rows if not _is_whole(re.split(r"[\s,;]", row[1])[0])), rows[0])
    return f"line {number}: {text[:60]!r}"


def _first_rows(path: Path) -> list[tuple[int, str]]:
    """Return the first lines of content of `path`, and their numbers; comments are left out."""
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


def edge_stream(path: Path, given: str | None = None, label: str | None = None) -> tuple[EdgeStream, list[str]]:
    """Stream the edges in the first two columns of the table at `path`; also return notes on skipped lines.

    given: --edge-columns, what further columns hold; without it, a header names them. label: --edge-labels.

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
    carried = carried_columns(path, layout, given, label)
    if unused := layout.columns - 2 - len(carried.all):
        used = f"only the first two of {layout.columns} columns are" if not carried else f"{unused} columns are not"
        notes.append(f"{path.name}: {used} used" + (" (--edge-columns names others)" if given is None else ""))
    whole, dtype = partial(_chunks, path, layout, carried), carried.dtype
    return EdgeStream(whole, carries=dtype, share=shares_of_text(path, whole)), notes


def shares_of_text(path: Path, chunks: Callable[..., Iterator[Chunk]]) -> ReadShare | None:
    """Return a reader of shares of the lines of `path`, by chunks((i, n)); None for a .gz, which is read in one go."""
    return None if path.suffix == ".gz" else shares_of(chunks)


def carried_columns(path: Path, layout: Layout, given: str | None, label: str | None = None) -> EdgeColumns:
    """Find the columns of edge data in the table at `path`, by their numbers; others as for `edge_stream`."""
    numbers = [str(column) for column in range(layout.columns)]
    names = [field.strip() for field in layout.header.split(layout.delimiter)] if layout.header else numbers
    names = names if len(set(names)) == layout.columns else numbers
    found = edge_columns(names[2:], given, str(path), named=names is not numbers, label=label)
    carried = numbered(found, names)
    if carried.time is not None:
        first = next((text for _, text in _first_rows(path) if text != layout.header), "")
        fields = first.split(layout.delimiter)
        carried = carried.with_first_time(fields[int(carried.time)] if len(fields) > int(carried.time) else "")
    return carried


def _chunks(path: Path, layout: Layout, carried: EdgeColumns, share: tuple[int, int] = (0, 1)) -> Iterator[Chunk]:
    """Yield the edges int64[2, k] by blocks of lines, with their data. Raises DataError where there are none.

    share: as in `whole_lines`, which may be without any.
    """
    delimiter = ord(layout.delimiter) if layout.delimiter else 0
    rows = 0
    contents = whole_lines(path, layout.lines_before, share)
    contents = (text if number else text.removeprefix(codecs.BOM_UTF8) for number, text in enumerate(contents))
    for content, (values, lengths, fault) in in_order(lambda text: (text, scanned(text, 2, delimiter)), contents):
        # Numpy reads all that is allowed, and names what is not.
        plain = fault < 0 and not (lengths == 1).any()
        chunk = values.reshape(-1, 2).T if plain else _parsed_by_numpy(path, content, layout, rows)
        yield (chunk, carried.of_text(path, content, layout, rows)) if carried else chunk
        rows += chunk.shape[1]
    if rows == 0 and share == (0, 1):
        raise DataError(f"{path} holds no edges")


def _parsed_by_numpy(path: Path, text: bytes, layout: Layout, rows_before: int) -> np.ndarray:
    try:
        lines = io.StringIO(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error.reason} at byte {error.start})") from error
    return parsed(path, lines, layout, np.int64, _KIND, rows_before, (0, 1)).T
