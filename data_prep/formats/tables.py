"""Tables with named columns, of whichever kind the file's name says: CSV or Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from data_prep.formats import csv_table, parquet_table
from data_prep.formats.columns import TableColumns
from leapmpi.errors import DataError

SUFFIXES = (*csv_table.SUFFIXES, parquet_table.SUFFIX)
Table = csv_table.CsvTable | parquet_table.ParquetTable

ROWS_AT_ONCE = 1 << 16
"""Rows of a batch."""


def is_table(path: Path) -> bool:
    """Whether the name of `path` is that of a table this module reads."""
    return path.name.lower().endswith(SUFFIXES)


def open_table(path: Path, known: Sequence[str] = ()) -> Table:
    """The table in the file `path`, of which so far only names and types are read; `known` as for CsvTable.

    Raises DataError when it is damaged or missing, ConfigError when pyarrow is needed.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if path.name.lower().endswith(parquet_table.SUFFIX):
        return parquet_table.ParquetTable(path)
    return csv_table.CsvTable(path, known)


def read_table(path: Path, known: Sequence[str] = ()) -> TableColumns:
    """All rows of the table in the file `path`, as `open_table` reads it."""
    return open_table(path, known).read()
