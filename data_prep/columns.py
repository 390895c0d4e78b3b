"""Tables with named columns of text or numbers: CSV with quotes, and Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

from data_prep.text_tables import open_text
from leapmpi.errors import ConfigError, DataError

CSV_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
SUFFIXES = (*CSV_SUFFIXES, ".parquet")
_DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True)
class Columns:
    """A table by columns: each a list of texts, or an array of numbers [rows] or [rows, k].

    lines: the line of each row in a text file (counted from 1), or None. unread: names of columns of other types.
    """

    path: Path
    columns: dict[str, list[str] | np.ndarray]
    rows: int
    lines: list[int] | None = None
    unread: tuple[str, ...] = ()

    def place(self, row: int) -> str:
        """How messages call the row number `row`."""
        return f"{self.path}, {f'row {row} (counted from 0)' if self.lines is None else f'line {self.lines[row]}'}"

    def first_of(self, known: Sequence[str]) -> str | None:
        """The column whose name, in lower case, comes first in `known`."""
        lower = {name.lower(): name for name in reversed(self.columns)}
        return next((lower[name] for name in known if name in lower), None)


def is_columns(path: Path) -> bool:
    """Whether the name of `path` is that of a table this module reads."""
    return path.name.lower().endswith(SUFFIXES)


def read_columns(path: Path, known: Sequence[str] = ()) -> Columns:
    """The table in the file `path`.

    A CSV begins with a line of names, unless `known` names are given: then its first line is data when none of its
    first two fields is one of them and a number stands in it, or no numbers stand in the second line either; columns
    are called "0", "1", ... Raises DataError naming the line of a damaged row, ConfigError when pyarrow is needed.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist")
    return _read_parquet(path) if path.name.lower().endswith(".parquet") else _read_csv(path, known)


@contextmanager
def _csv_faults(path: Path, reader: Iterator) -> Iterator[None]:
    try:
        yield
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: cannot be read as CSV ({error})") from error


def _read_csv(path: Path, known: Sequence[str]) -> Columns:
    with open_text(path) as file:
        first = next((line for line in file if line.strip()), "")
    delimiter = "\t" if ".tsv" in path.name.lower() else next((mark for mark in _DELIMITERS if mark in first), ",")
    rows, lines = [], []
    with open_text(path, newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        with _csv_faults(path, reader):
            for row in reader:
                if not row:
                    continue
                rows.append(row)
                lines.append(reader.line_num)
                if len(row) != len(rows[0]):
                    raise DataError(
                        f"{path}, line {reader.line_num}: {len(row)} fields, but the first line has {len(rows[0])}"
                    )
    if not rows:
        raise DataError(f"{path} is empty")
    names = [str(number) for number in range(len(rows[0]))]
    if not known or _is_header(rows, known):
        names = [name.strip() for name in rows.pop(0)]
        del lines[0]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{path}, line 1: two columns are called {twice!r}")
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]
    return Columns(path, dict(zip(names, columns, strict=True)), len(rows), lines)


def _is_header(rows: list[list[str]], known: Sequence[str]) -> bool:
    """Whether the first row names columns: by names that are known, or by texts above numbers."""
    if any(field.strip().lower() in known for field in rows[0][:2]):
        return True
    numeric = [all(field.strip().lstrip("-").isdigit() for field in row[:2]) for row in rows[:2]]
    return numeric == [False, True]


def _parquet() -> ModuleType:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            "Parquet files are read by pyarrow, which is not installed; pip install pyarrow, or save them as CSV"
        ) from error
    return pyarrow.parquet


def _read_parquet(path: Path) -> Columns:
    parquet = _parquet()
    import pyarrow

    try:
        table = parquet.read_table(path)
        found = {name: _array(table.column(at)) for at, name in enumerate(table.column_names)}
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        sentence = str(error).split("\n")[0]
        raise DataError(f"{path} is damaged or truncated, or no Parquet file ({sentence})") from error
    read = {name: column for name, column in found.items() if column is not None}
    return Columns(path, read, table.num_rows, None, tuple(sorted(found.keys() - read.keys())))


def _array(column) -> list[str] | np.ndarray | None:
    """A column of pyarrow as texts or numbers; missing texts become "", missing numbers NaN. None: another type."""
    import pyarrow
    from pyarrow import types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_string(kind) or types.is_large_string(kind):
        return [text or "" for text in column.to_pylist()]
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return column.to_numpy()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        whole = pyarrow.concat_arrays(column.chunks) if column.num_chunks else None
        if whole is None or whole.null_count:
            return None
        flat = whole.flatten().to_numpy(zero_copy_only=False)
        # Lists of different lengths are no rows of a matrix.
        width = len(flat) // len(whole) if len(whole) else 0
        same = all(len(values) == width for values in whole)
        return flat.reshape(len(whole), width) if same and flat.dtype.kind in "biuf" else None
    return None
