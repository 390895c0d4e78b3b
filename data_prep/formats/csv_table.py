"""Tables in CSV, with quotes and a line of names, read whole or by batches of rows."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from data_prep.formats.columns import TableColumns
from data_prep.formats.numeric_text import open_text
from leapmpi.errors import DataError

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_DELIMITERS = (",", ";", "\t")


class CsvTable:
    """The table in the file `path`; its columns are called `names`, all of them of text.

    It begins with a line of names, unless `known` names are given: then its first line is data when none of its first
    two fields is a known name and it has a number, or the second line has no numbers either; columns are then called
    "0", "1", ... Raises DataError naming the line of a damaged row, also while rows are read.
    """

    unread: tuple[str, ...] = ()
    integers: frozenset[str] = frozenset()
    """As of ParquetTable: all columns are texts, so none is unread, and none is known to hold whole numbers alone."""

    def __init__(self, path: Path, known: Sequence[str] = ()) -> None:
        self.path = path
        # What separates fields, by the first line of content.
        with open_text(path) as file:
            first = next((line for line in file if line.strip()), "")
        tabs = ".tsv" in path.name.lower()
        self._delimiter = "\t" if tabs else next((mark for mark in _DELIMITERS if mark in first), ",")

        # Names of columns, by the first two rows.
        head = [row for _, row in islice(self._rows(), 2)]
        if not head:
            raise DataError(f"{path} is empty")
        self.named = not known or _is_header(head, known)
        self.names = [name.strip() if self.named else str(column) for column, name in enumerate(head[0])]
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise DataError(f"{path}, line 1: two columns are called {twice!r}")

    def read(self, only: Sequence[str] | None = None) -> TableColumns:
        """The columns `only`, or all, of all rows."""
        return self._columns(list(self._data()), 0, only)

    def batches(self, rows_at_once: int, only: Sequence[str] | None = None) -> Iterator[TableColumns]:
        """The columns `only`, or all, of at most `rows_at_once` rows at a time."""
        data = self._data()
        first_row = 0
        while batch := list(islice(data, rows_at_once)):
            yield self._columns(batch, first_row, only)
            first_row += len(batch)

    def _columns(self, rows: list[tuple[int, list[str]]], first_row: int, only: Sequence[str] | None) -> TableColumns:
        places = {name: self.names.index(name) for name in (self.names if only is None else only)}
        columns = {name: [row[place] for _, row in rows] for name, place in places.items()}
        return TableColumns(self.path, columns, len(rows), np.array([line for line, _ in rows], np.int64), first_row)

    def _data(self) -> Iterator[tuple[int, list[str]]]:
        return islice(self._rows(), int(self.named), None)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Line number and fields of every row that is not empty, that of the names included."""
        width = None
        with open_text(self.path, newline="") as file:
            reader = csv.reader(file, delimiter=self._delimiter, strict=True)
            try:
                for row in reader:
                    if not row:
                        continue
                    width = width or len(row)
                    if len(row) != width:
                        raise DataError(
                            f"{self.path}, line {reader.line_num}: {len(row)} fields, but the first line has {width}"
                        )
                    yield reader.line_num, row
            except csv.Error as error:
                raise DataError(f"{self.path}, line {reader.line_num}: cannot be read as CSV ({error})") from error


def _is_header(rows: list[list[str]], known: Sequence[str]) -> bool:
    """Whether the first row names columns: by names that are known, or by texts above numbers."""
    if any(field.strip().lower() in known for field in rows[0][:2]):
        return True
    numeric = [all(field.strip().lstrip("-").isdigit() for field in row[:2]) for row in rows[:2]]
    return numeric == [False, True]
