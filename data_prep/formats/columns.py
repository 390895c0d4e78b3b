"""Named columns of texts or numbers: all rows of a table, or a batch of them; and class numbers from a column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from leapmpi.errors import DataError

_UNLABELLED = ("", "-1", "nan", "none", "null")


def first_of(names: Iterable[str], known: Sequence[str]) -> str | None:
    """The one of `names` that, in lower case, comes first in `known`."""
    lower = {name.lower(): name for name in reversed(list(names))}
    return next((lower[name] for name in known if name in lower), None)


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

    def first_of(self, known: Sequence[str]) -> str | None:
        """The column whose name, in lower case, comes first in `known`."""
        return first_of(self.columns, known)


def class_numbers(table: TableColumns, name: str) -> tuple[np.ndarray, list[str] | None]:
    """Labels of the rows of `table` from its column `name`, and the names of the classes if it holds texts.

    Whole numbers stay; texts are numbered in their alphabetical order. Empty is -1, unlabelled.
    Raises DataError when no row has a label.
    """
    column = table.columns[name]
    if isinstance(column, np.ndarray):
        return column, None

    # Texts: numbers where all of them are, else names of classes.
    texts = [text.strip() for text in column]
    given = {text for text in texts if text.lower() not in _UNLABELLED}
    if not given:
        raise DataError(f"{table.path}: no row has a label in column {name!r}")
    numeric = all(text.isascii() and text.isdigit() and len(text) <= 18 for text in given)
    if numeric:
        numbers = {text: int(text) for text in given}
    else:
        numbers = {text: number for number, text in enumerate(sorted(given))}
    labels = np.fromiter((numbers.get(text, -1) for text in texts), np.int64, len(texts))
    return labels, None if numeric else sorted(given)
