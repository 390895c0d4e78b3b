"""Tables with named columns: what a table offers, some of its rows by columns, and class numbers from a column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from leapmpi.dataset.hdf5.names import REGRESSION
from leapmpi.errors import DataError

_UNKNOWN = ("", "nan", "none", "null")

ROWS_AT_ONCE = 1 << 16
"""Rows of a batch."""

_UNLABELLED = ("", "-1", "nan", "none", "null")


@dataclass(frozen=True)
class TableColumns:
    """Rows of a table by columns: each a list of texts, or an array of numbers [rows] or [rows, k].

    lines: the line of each row in a text file (counted from 1), or None. first_row: how many rows of the table come
    before these. unread: names of columns of other types.
    """

    path: Path
    columns: dict[str, list[str] | np.ndarray]
    rows: int
    lines: np.ndarray | None = None
    first_row: int = 0
    unread: tuple[str, ...] = ()

    def place(self, row: int) -> str:
        """How messages call the row number `row` of these."""
        counted = f"row {self.first_row + row} (counted from 0)"
        return f"{self.path}, {counted if self.lines is None else f'line {self.lines[row]}'}"


class Table(Protocol):
    """A table in the file `path`, of which so far only names and types are read.

    names: those of the columns of texts, numbers and lists of numbers; unread: those of the others; integers: those of
    columns that hold whole numbers alone.
    """

    path: Path
    names: list[str]
    unread: tuple[str, ...]
    integers: frozenset[str]

    def batches(self, only: Sequence[str]) -> Iterator[TableColumns]:
        """The columns `only` of at most ROWS_AT_ONCE rows at a time. Raises DataError where the file is damaged.

        Lists of several lengths are no rows of a matrix: such a column is among the `unread` of the batch.
        """


def first_of(names: Iterable[str], known: Sequence[str]) -> str | None:
    """The one of `names` that, in lower case, comes first in `known`."""
    lower = {name.lower(): name for name in reversed(list(names))}
    return next((lower[name] for name in known if name in lower), None)


def labels_in(table: TableColumns, name: str, task: str | None) -> tuple[np.ndarray, list[str] | None]:
    """Labels of the rows of `table` from its column `name`, and the names of the classes if it holds texts.

    Whole numbers stay; texts are numbered in their alphabetical order. Empty is -1, unlabelled. Numbers that are not
    all whole, or all numbers where `task` is a regression, become float64, and empty is NaN.

    Raises DataError when no row has a label, or one of a regression is no number.
    """
    column = table.columns[name]
    if isinstance(column, np.ndarray):
        return column.astype(np.float64) if task == REGRESSION else column, None

    # Texts: numbers where all of them are, else names of classes.
    texts = [text.strip() for text in column]
    given = sorted({text for text in texts if text.lower() not in _UNLABELLED})
    if not given:
        raise DataError(f"{table.path}: no row has a label in column {name!r}")
    if task == REGRESSION or (task is None and _are_numbers(given)):
        return _targets(table, name, texts), None
    numeric = all(text.isascii() and text.isdigit() and len(text) <= 18 for text in given)
    numbers = {text: int(text) if numeric else number for number, text in enumerate(given)}
    labels = np.fromiter((numbers.get(text, -1) for text in texts), np.int64, len(texts))
    return labels, None if numeric else given


def _are_numbers(texts: Iterable[str]) -> bool:
    """Whether all are numbers, and one of them is not whole."""
    try:
        return any(not float(text).is_integer() for text in texts)
    except (ValueError, OverflowError):
        return False


def _targets(table: TableColumns, name: str, texts: list[str]) -> np.ndarray:
    """float64[rows], NaN where there is no text. Raises DataError for one that is no number."""
    values = np.full(len(texts), np.nan)
    for row, text in enumerate(texts):
        if text.lower() not in _UNKNOWN:
            try:
                values[row] = float(text)
            except ValueError:
                raise DataError(f"{table.place(row)}: {text[:40]!r} in column {name!r} is no number") from None
    return values
