"""Tables of numbers in text, separated by commas, semicolons, tabs or blanks, gzip or not: edge lists and columns."""

from __future__ import annotations

import gzip
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO

import numpy as np

from data_prep.workspace import Workspace
from leapmpi.errors import DataError

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
_TEXT_AT_ONCE = 4 * 2**20
_COMMENTS = ("#", "%")
_DELIMITERS = (",", ";", "\t")


def is_text_table(path: Path) -> bool:
    """Whether the name of `path` is that of a text table this module reads."""
    return path.name.lower().endswith(TEXT_SUFFIXES)


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """The content of `path`, unpacked when its name ends with .gz.

    Raises DataError, from the body too, when the file is not valid gzip.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged or truncated, or not gzip at all ({error})") from error


@contextmanager
def open_text(path: Path, newline: str | None = None) -> Iterator[TextIO]:
    """The text of `path`, unpacked when its name ends with .gz; `newline` as for open().

    Raises DataError, from the body too, when the file is not valid gzip or not UTF-8.
    """
    try:
        with open_bytes(path) as file, TextIOWrapper(file, encoding="utf-8-sig", newline=newline) as text:
            yield text
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error.reason} at byte {error.start})") from error


@dataclass(frozen=True)
class Layout:
    """How the lines of a table are built: what separates fields, and what precedes the numbers."""

    delimiter: str | None
    columns: int
    header: str | None
    lines_before: int


def _is_number(field: str) -> bool:
    """Whether `field` is a number; an empty field is one, which is missing."""
    try:
        float(field or "nan")
    except ValueError:
        return False
    return True


def find_layout(path: Path) -> Layout | None:
    """The layout of the table at `path`, or None when it has no line of content.

    The first line that is neither blank nor a comment (# or %) is a header when any of its fields is not a number.
    """
    with open_text(path) as file:
        for number, line in enumerate(file):
            text = line.strip()
            if not text or text.startswith(_COMMENTS):
                continue
            delimiter = next((mark for mark in _DELIMITERS if mark in text), None)
            fields = [field.strip() for field in text.split(delimiter)]
            if all(map(_is_number, fields)):
                return Layout(delimiter, len(fields), None, number)
            return Layout(delimiter, len(fields), text, number + 1)
    return None


def parsed(
    lines: Iterable[str],
    layout: Layout,
    dtype: type,
    columns: tuple[int, ...] | None,
    converter: Callable[[str], float] | None = None,
) -> np.ndarray:
    """The numbers [rows, columns] in `lines`. Raises ValueError or DeprecationWarning, see `explained`."""
    with warnings.catch_warnings():
        # numpy warns where it would cut 1.5 to the id 1, and where a table is empty.
        warnings.simplefilter("error", DeprecationWarning)
        warnings.simplefilter("ignore", UserWarning)
        return np.loadtxt(
            lines, dtype, _COMMENTS, layout.delimiter, usecols=columns, ndmin=2, converters=converter, encoding="utf-8"
        )


def explained(path: Path, error: Exception, kind: str, rows_before: int = 0) -> DataError:
    """What `parsed` raised as a DataError, for lines of `path` after the first `rows_before` rows of data."""
    text = str(error)
    row = re.search(r"row (\d+)", text)
    place = f"{path}, data row {rows_before + int(row[1])} (counted from 0)" if row else str(path)
    if value := re.search(r"could not convert string '([^']*)'", text):
        return DataError(f"{place}: {value[1]!r} is not a {kind}")
    if "column" in text:
        return DataError(f"{place}: the row has too few fields, or not as many as the rows before it")
    return DataError(f"{place}: cannot be read as a table of numbers ({text})")


def read_numbers(path: Path, dtype: type, workspace: Workspace | None = None) -> np.ndarray:
    """The table at `path` as [rows, columns] of `dtype`; an empty field of a float table is NaN.

    With a `workspace` it lies in a temporary file there, and only some lines are held at a time. Raises DataError
    naming file, row and text of the first field that is not such a number.
    """
    layout = find_layout(path)
    if layout is None:
        return np.empty((0, 1), dtype)
    blocks = _number_blocks(path, layout, np.dtype(dtype))
    if workspace is None:
        return np.concatenate(list(blocks))

    # Block by block into a temporary file.
    rows = 0
    target = workspace.path("table")
    with target.open("wb") as file:
        for block in blocks:
            file.write(np.ascontiguousarray(block))
            rows += len(block)
    return workspace.map(target, dtype, (rows, layout.columns))


def _number_blocks(path: Path, layout: Layout, dtype: np.dtype) -> Iterator[np.ndarray]:
    """The rows of the table by blocks [k, columns]; the first block is empty. Raises DataError as `read_numbers`."""
    rows = 0
    with open_text(path) as file:
        for _ in range(layout.lines_before):
            next(file)
        yield np.empty((0, layout.columns), dtype)
        while lines := file.readlines(_TEXT_AT_ONCE):
            block = _parsed_floats(path, lines, layout, dtype, rows)
            if len(block) and block.shape[1] != layout.columns:
                raise explained(path, ValueError("the number of columns changed at row 0"), "number", rows)
            if len(block):
                yield block
            rows += len(block)


def _parsed_floats(path: Path, lines: list[str], layout: Layout, dtype: np.dtype, rows_before: int) -> np.ndarray:
    """The numbers in `lines`, with empty fields as NaN where there are any."""
    kind = "number" if dtype.kind == "f" else "whole number"
    try:
        return parsed(lines, layout, dtype, None)
    except (ValueError, DeprecationWarning) as error:
        if kind == "whole number" or "string ''" not in str(error):
            raise explained(path, error, kind, rows_before) from error
    try:  # again, slowly, now that empty fields are known to occur
        return parsed(lines, layout, dtype, None, lambda field: float(field or "nan"))
    except (ValueError, DeprecationWarning) as error:
        raise explained(path, error, kind, rows_before) from error
