"""Tables of whichever kind the file's name says: CSV, with quotes and a line of names, or Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from data_prep.formats import columns
from data_prep.formats.columns import Table, TableColumns
from data_prep.formats.numeric_text import DELIMITERS, open_text
from leapmpi.errors import ConfigError, DataError, counted

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")


def open_table(path: Path, known: Sequence[str] = ()) -> Table:
    """Open the table in the file `path`; `known` as for CsvTable.

    Raises DataError when it is damaged or missing, ConfigError when pyarrow is needed.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if not path.name.lower().endswith(".parquet"):
        return CsvTable(path, known)
    try:
        from data_prep.formats.parquet_table import ParquetTable
    except ImportError as error:
        raise ConfigError(
            "Parquet files are read by pyarrow, which is not installed; pip install pyarrow, or save them as CSV"
        ) from error
    return ParquetTable(path)


class CsvTable:
    """The table in the file `path`; all its columns are texts.

    It begins with a line of names, unless `known` names are given: then its first line is data when none of its first
    two fields is a known name and it has a number, or the second line has no numbers either; columns are then called
    "0", "1", ... Raises DataError naming the line of a damaged row, also while rows are read.
    """

    unread: tuple[str, ...] = ()
    integers: frozenset[str] = frozenset()
    pieces = 1

    def __init__(self, path: Path, known: Sequence[str] = ()) -> None:
        self.path = path
        # What separates fields, by the first line of content.
        with open_text(path) as file:
            first = next((line for line in file if line.strip()), "")
        tabs = ".tsv" in path.name.lower()
        self._delimiter = "\t" if tabs else next((mark for mark in DELIMITERS if mark in first), ",")

        # Names of columns, by the first two rows.
        head = [row for _, row in islice(self._rows(), 2)]
        if not head:
            raise DataError(f"{path} is empty")
        self.named = not known or any(field.strip().lower() in known for field in head[0][:2])
        if not self.named:
            # Texts above numbers.
            numeric = [all(field.strip().lstrip("-").isdigit() for field in row[:2]) for row in head]
            self.named = numeric == [False, True]
        self.names = [name.strip() if self.named else str(column) for column, name in enumerate(head[0])]
        self._check_names()

    def first_row(self) -> list[str]:
        """Return the fields of the first row, be it names or data."""
        return next(self._rows())[1]

    def take_names(self) -> None:
        """Take the first row for names, which the fields of the first two rows did not show. Raises DataError."""
        self.named, self.names = True, [name.strip() for name in self.first_row()]
        self._check_names()

    def _check_names(self) -> None:
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise DataError(f"{self.path}, line 1: two columns are called {twice!r}")

    def batches(self, only: Sequence[str], pieces: range | None = None) -> Iterator[TableColumns]:
        """Yield the columns `only` of at most ROWS_AT_ONCE rows at a time; nothing of no pieces."""
        if pieces is not None and not pieces:
            return
        places = {name: self.names.index(name) for name in only}
        data = islice(self._rows(), int(self.named), None)
        first_row = 0
        while batch := list(islice(data, columns.ROWS_AT_ONCE)):
            lines = np.array([line for line, _ in batch], np.int64)
            texts = {name: [row[place] for _, row in batch] for name, place in places.items()}
            yield TableColumns(self.path, texts, len(batch), lines, first_row)
            first_row += len(batch)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield line number and fields of every row that is not empty, that of the names included."""
        width = None
        with open_text(self.path, newline="") as file:
            reader = csv.reader(file, delimiter=self._delimiter, strict=True)
            try:
                for row in filter(None, reader):
                    width = width or len(row)
                    if len(row) != width:
                        raise DataError(
                            f"{self.path}, line {reader.line_num}: {counted(len(row), 'field')}, but the first line "
                            f"has {width}"
                        )
                    yield reader.line_num, row
            except csv.Error as error:
                raise DataError(f"{self.path}, line {reader.line_num}: cannot be read as CSV ({error})") from error
