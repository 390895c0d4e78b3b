"""Tables of numbers in text, separated by commas, semicolons, tabs or blanks, gzip or not: edge lists and columns."""

from __future__ import annotations

import gzip
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO

import numpy as np

from data_prep.workspace import Workspace
from leapmpi.errors import DataError

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
_TEXT_AT_ONCE = 4 * 2**20
COMMENTS = ("#", "%")
DELIMITERS = (",", ";", "\t")
"""Separators of fields, besides blanks."""


def is_text_table(path: Path) -> bool:
    """Return whether the name of `path` is that of a text table for this module."""
    return path.name.lower().endswith(TEXT_SUFFIXES)


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open the content of `path`, unpacked when its name ends with .gz.

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
    """Open the text of `path`, unpacked when its name ends with .gz; `newline` as for open().

    Raises DataError, from the body too, when the file is not valid gzip or not UTF-8.
    """
    try:
        with open_bytes(path) as file, TextIOWrapper(file, encoding="utf-8-sig", newline=newline) as text:
            yield text
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error.reason} at byte {error.start})") from error


@dataclass(frozen=True)
class Layout:
    """Layout of the lines of a table: the separator of fields, and the lines before the numbers."""

    delimiter: str | None
    columns: int
    header: str | None
    lines_before: int


def exact_whole(text: str) -> int:
    """Return the whole number of 64 bits that `text` spells, in digits or as 1.7e9 or 5.0. Raises ValueError."""
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError(text) from None
    # An exponent of many digits would take all memory as a whole number.
    if not number.is_finite() or number.adjusted() > 18 or number != number.to_integral_value():
        raise ValueError(text)
    if not -(2**63) <= (found := int(number)) < 2**63:
        raise ValueError(text)
    return found


def is_number(text: str) -> bool:
    """Return whether `text` is a number; an empty one is not."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def find_layout(path: Path) -> Layout | None:
    """Find the layout of the table at `path`, or None when it has no line of content.

    The first line that is neither blank nor a comment (# or %) is a header when any of its fields is not a number.
    """
    with open_text(path) as file:
        for number, line in enumerate(file):
            text = line.strip()
            if not text or text.startswith(COMMENTS):
                continue
            delimiter = next((mark for mark in DELIMITERS if mark in text), None)
            fields = [field.strip() for field in text.split(delimiter)]
            # An empty field is a number that is missing.
            if all(is_number(field or "nan") for field in fields):
                return Layout(delimiter, len(fields), None, number)
            return Layout(delimiter, len(fields), text, number + 1)
    return None


def parsed(
    path: Path,
    lines: Sequence[str],
    layout: Layout,
    dtype: type,
    kind: str,
    rows_before: int,
    columns: tuple[int, ...] | None = None,
    convert: Callable[[str], int] | None = None,
) -> np.ndarray:
    """Parse the numbers [rows, columns] in `lines` of `path`, all columns unless given; an empty float field is NaN.

    convert: conversion of a field, which raises ValueError for what is no `kind`; that of numpy unless given. Raises
    DataError for what is no `kind`; it counts rows of data from `rows_before` on.
    """
    for converter in (convert, lambda field: float(field or "nan")):
        try:
            with warnings.catch_warnings():
                # numpy warns where it would cut 1.5 to the id 1, and where a table is empty.
                warnings.simplefilter("error", DeprecationWarning)
                warnings.simplefilter("ignore", UserWarning)
                return np.loadtxt(
                    lines, dtype, COMMENTS, layout.delimiter, converter, usecols=columns, ndmin=2, encoding="utf-8"
                )
        except (ValueError, DeprecationWarning) as error:
            # Again, slowly, where empty fields are known to occur.
            if converter or dtype is np.int64 or "string ''" not in str(error):
                raise _explained(path, str(error), kind, rows_before) from error
    raise AssertionError("the second way returns or raises")


def _explained(path: Path, text: str, kind: str, rows_before: int) -> DataError:
    """Convert numpy's complaint about some lines of `path` to a DataError."""
    row = re.search(r"row (\d+)", text)
    place = f"{path}, data row {rows_before + int(row[1])} (counted from 0)" if row else str(path)
    if value := re.search(r"could not convert string '([^']*)'", text):
        return DataError(f"{place}: {value[1]!r} is not a {kind}")
    if "column" in text:
        return DataError(f"{place}: the row has too few fields, or not as many as the rows before it")
    return DataError(f"{place}: cannot be read as a table of numbers ({text})")


def read_numbers(path: Path, dtype: type, workspace: Workspace | None = None) -> np.ndarray:
    """Read the table at `path` as [rows, columns] of `dtype`; an empty field of a float table is NaN.

    With a `workspace` it goes to a temporary file there, and only some lines are held at a time. Raises DataError
    naming file, row and text of the first field that is not such a number.
    """
    layout = find_layout(path)
    if layout is None:
        return np.empty((0, 1), dtype)
    blocks = _number_blocks(path, layout, dtype)
    if workspace is None:
        return np.concatenate([np.empty((0, layout.columns), dtype), *blocks])

    # Block by block into a temporary file.
    rows = 0
    target = workspace.path("table")
    with workspace.written(target) as file:
        for block in blocks:
            file.write(np.ascontiguousarray(block))
            rows += len(block)
    return workspace.map(target, dtype, (rows, layout.columns))


def _number_blocks(path: Path, layout: Layout, dtype: type) -> Iterator[np.ndarray]:
    """Yield the rows of the table by blocks [k, columns]. Raises DataError as `read_numbers`."""
    rows = 0
    kind = "whole number" if dtype is np.int64 else "number"
    with open_text(path) as file:
        for _ in range(layout.lines_before):
            next(file)
        while lines := file.readlines(_TEXT_AT_ONCE):
            block = parsed(path, lines, layout, dtype, kind, rows)
            if len(block) and block.shape[1] != layout.columns:
                raise _explained(path, "the number of columns changed at row 0", kind, rows)
            if len(block):
                yield block
            rows += len(block)
