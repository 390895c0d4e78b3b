"""Tables with named columns: some of its rows by columns, class numbers, and the columns that edges carry.

The last are known by their names, or named by --edge-columns.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from data_prep.edges.edge_records import fill, record_type
from data_prep.formats.integer_lines import COMMENT, scanned
from data_prep.formats.numeric_text import Layout, exact_whole, is_number, parsed
from leapmpi.dataset.hdf5.names import REGRESSION
from leapmpi.errors import ConfigError, DataError, counted

_UNKNOWN = ("", "nan", "none", "null")

ROWS_AT_ONCE = 1 << 16
"""Rows of a batch."""

_WHOLE = "whole number of 64 bits"
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
    rows_before: int = 0
    """Rows before first_row that are in other files."""

    def place(self, row: int) -> str:
        """Return the name of the row number `row` in messages."""
        counted = f"row {self.first_row - self.rows_before + row} (counted from 0)"
        return f"{self.path}, {counted if self.lines is None else f'line {self.lines[row]}'}"


class Table(Protocol):
    """Table in the file `path`; so far only its names and types are read.

    names: those of the columns of texts, numbers and lists of numbers; unread: those of the others; integers: those of
    columns that hold whole numbers alone. pieces: the number of runs of rows that are read without those before.
    """

    path: Path
    names: list[str]
    unread: tuple[str, ...]
    integers: frozenset[str]
    pieces: int

    def batches(self, only: Sequence[str], pieces: range | None = None) -> Iterator[TableColumns]:
        """Yield the columns `only` of at most ROWS_AT_ONCE rows at a time. Raises DataError where the file is damaged.

        pieces: those that are read, by default all. Numbers of rows then count from the first of them.

        Lists of several lengths are not rows of a matrix: such a column is among the `unread` of the batch.
        """


def pieces_of_share(table: Table, share: tuple[int, int]) -> range:
    """Return the pieces of `table` that are share (i, n)."""
    i, n = share
    return range(table.pieces * i // n, table.pieces * (i + 1) // n)


def first_of(names: Iterable[str], known: Sequence[str]) -> str | None:
    """Return the one of `names` that, in lower case, comes first in `known`."""
    lower = {name.lower(): name for name in reversed(list(names))}
    return next((lower[name] for name in known if name in lower), None)


def labels_in(table: TableColumns, name: str, task: str | None) -> tuple[np.ndarray, list[str] | None]:
    """Return labels of the rows of `table` from its column `name`, and the names of the classes if it holds texts.

    Whole numbers stay; texts are numbered in their alphabetical order. Empty is -1, unlabelled. Numbers that are not
    all whole, or all numbers where `task` is a regression, become float64, and empty is NaN.

    Raises DataError when no row has a label, or one of a regression is not a number.
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
    """Return whether all are numbers, and one of them is not whole."""
    try:
        return any(not float(text).is_integer() for text in texts)
    except (ValueError, OverflowError):
        return False


def _targets(table: TableColumns, name: str, texts: list[str]) -> np.ndarray:
    """Return float64[rows], NaN where there is no text. Raises DataError for one that is not a number."""
    values = np.full(len(texts), np.nan)
    for row, text in enumerate(texts):
        if text.lower() not in _UNKNOWN:
            try:
                values[row] = float(text)
            except ValueError:
                raise DataError(f"{table.place(row)}: {text[:40]!r} in column {name!r} is not a number") from None
    return values


WEIGHT, TIME, FEATURE, LABEL, UNUSED = "weight", "time", "feature", "label", "-"
_ROLES = (WEIGHT, TIME, FEATURE, LABEL, UNUSED)
_SINGLE = (WEIGHT, TIME, LABEL)
_KNOWN = {
    WEIGHT: ("weight", "weights", "edge_weight"),
    TIME: ("time", "timestamp", "edge_time", "unixtime", "unix_time"),
}


@dataclass(frozen=True)
class EdgeColumns:
    """The columns of a table that edges carry: numbers or names of columns, None and () where there are none.

    whole_times: whether times are whole numbers.
    """

    weight: int | str | None = None
    time: int | str | None = None
    features: tuple[int | str, ...] = ()
    label: int | str | None = None
    whole_times: bool = True

    def __bool__(self) -> bool:
        return bool(self.all)

    @property
    def all(self) -> tuple[int | str, ...]:
        """All columns."""
        return tuple(each for each in (self.weight, self.time, self.label, *self.features) if each is not None)

    @property
    def dtype(self) -> np.dtype | None:
        """The type of the records, None where edges carry nothing."""
        if not self:
            return None
        time = "" if self.time is None else "<i8" if self.whole_times else "<f8"
        kind = np.dtype("<f4")
        weight, labels = self.weight is not None, self.label is not None
        return record_type(kind, len(self.features), weight=weight, time=time, labels=labels)

    def records(self, values: dict[int | str, np.ndarray], place: Callable[[int], str]) -> np.ndarray:
        """Return the records of rows whose columns hold `values`; `place` names a row in messages.

        Raises DataError for a time that is not whole, as others, and for a number that its field does not hold.
        """
        found = np.empty(len(next(iter(values.values()))), self.dtype)
        if self.time is not None:
            times = values[self.time]
            if self.whole_times and times.dtype.kind == "f" and (odd := times != np.floor(times)).any():
                row = int(np.argmax(odd))
                raise DataError(f"{place(row)}: the time {times[row]} is not whole, but the first one is")
        for field, column in ((WEIGHT, self.weight), (TIME, self.time), ("labels", self.label)):
            if column is not None:
                in_column = f" in column {column!r}"
                fill(found, field, values[column], lambda row, what, at=in_column: f"{place(row)}: {what}{at}")
        if self.features:
            features = np.stack([values[column] for column in self.features], axis=1)
            fill(found, "features", features, lambda row, what: f"{place(row)}: {what}")
        return found

    def of_text(self, path: Path, text: bytes, layout: Layout, rows_before: int) -> np.ndarray:
        """Parse the records of the lines of `text`, some whole lines of `path`. Raises DataError naming a bad field."""
        columns = [column for column in self.all if isinstance(column, int)]
        width = max(columns) + 1
        values, lengths, fault = scanned(text, width, ord(layout.delimiter) if layout.delimiter else 0)
        filled = lengths[(lengths != 0) & (lengths != COMMENT)]
        if fault < 0 and (filled >= width).all():
            rows = values.reshape(-1, width)[:, columns]
        else:
            # Numpy reads all that is allowed, and names what is not.
            rows = parsed(path, _lines(text), layout, np.float64, "number", rows_before, tuple(columns))
        values = {column: rows[:, number] for number, column in enumerate(columns)}
        if self.whole_times and self.time is not None and _inexact(values[self.time]):
            lines, column = _lines(text), (self.time,)
            values[self.time] = parsed(path, lines, layout, np.int64, _WHOLE, rows_before, column, exact_whole)[:, 0]
        return self.records(values, lambda row: f"{path}, data row {rows_before + row} (counted from 0)")

    def of_batch(self, batch: TableColumns) -> np.ndarray:
        """Return the records of the rows of `batch`. Raises DataError with the row of a field that is not a number."""
        values = {name: numbers_in(batch, str(name)) for name in self.all}
        if self.whole_times and self.time is not None and _inexact(values[self.time]):
            values[self.time] = whole_numbers(batch, str(self.time), _WHOLE)
        return self.records(values, batch.place)

    def with_first_time(self, field: str) -> EdgeColumns:
        """Return these columns, with whole times where `field`, the first of them, is whole."""
        return replace(self, whole_times=field.strip().lstrip("+-").isdigit())


def _lines(text: bytes) -> list[str]:
    """Return the lines of `text`."""
    return list(io.StringIO(text.decode("utf-8", "replace")))


def _inexact(values: np.ndarray) -> bool:
    """Return whether some of `values` are whole numbers so large that float64 may have rounded them."""
    return values.dtype.kind == "f" and bool((np.abs(values) >= 2.0**53).any())


def whole_numbers(batch: TableColumns, name: str, wanted: str) -> np.ndarray:
    """Return a column of whole numbers: those of an array as they are, texts as int64[rows].

    Raises DataError with the row of a text that is not what is `wanted`.
    """
    column = batch.columns[name]
    if isinstance(column, np.ndarray):
        return column
    found = np.empty(len(column), np.int64)
    for row, text in enumerate(column):
        try:
            found[row] = exact_whole(text)
        except ValueError:
            raise DataError(f"{batch.place(row)}: {text[:40]!r} in column {name!r} is not a {wanted}") from None
    return found


def numbers_in(batch: TableColumns, name: str) -> np.ndarray:
    """Return a column as numbers [rows] or [rows, k]. Raises DataError with the row of a text that is not a number."""
    column = batch.columns[name]
    if isinstance(column, np.ndarray):
        return column
    try:
        return np.array(column, np.float64)
    except ValueError:
        row = next(row for row, text in enumerate(column) if not is_number(text))
        raise DataError(f"{batch.place(row)}: {column[row][:40]!r} in column {name!r} is not a number") from None


def edge_columns(
    names: Sequence[str], given: str | None, where: str, *, named: bool, label: str | None = None
) -> EdgeColumns:
    """Find the roles of the columns `names` that follow the ends of an edge in `where`, as names.

    given: --edge-columns, such as weight,time or rating=weight,date=time: the roles of the first columns, or of named
    ones. Without it columns are known by their names, where they are `named`. label: --edge-labels, the column of
    labels. Raises ConfigError for what does not fit.
    """
    known = {role: first_of(names, _KNOWN[role]) if named and given is None else None for role in _KNOWN}
    roles = {name: role for role, name in known.items() if name is not None} | _given_roles(names, given, where)
    if label is not None:
        if label not in names:
            raise ConfigError(
                f"--edge-labels {label}: edges of {where} have no such column; further ones: "
                f"{', '.join(names) or 'none'}"
            )
        # --edge-labels wins over a role that the column's name suggests.
        roles[label] = LABEL
    for role in _SINGLE:
        if list(roles.values()).count(role) > 1:
            raise ConfigError(f"--edge-columns {given or label}: an edge has one {role}, not several")
    by_role = {role: next((name for name, found in roles.items() if found == role), None) for role in _SINGLE}
    features = tuple(name for name, role in roles.items() if role == FEATURE)
    return EdgeColumns(by_role[WEIGHT], by_role[TIME], features, by_role[LABEL])


def _given_roles(names: Sequence[str], given: str | None, where: str) -> dict[str, str]:
    """Parse the role of each column that --edge-columns names: a role, of the next column, or NAME=ROLE."""
    roles: dict[str, str] = {}
    if given is None:
        return roles
    for number, item in enumerate(part.strip() for part in given.split(",")):
        name, equals, role = item.rpartition("=")
        if role not in _ROLES:
            raise ConfigError(f"--edge-columns {given}: {role!r} is none of {', '.join(_ROLES)}")
        # Roles without names apply in the order of the columns.
        if not equals and number >= len(names):
            raise ConfigError(
                f"--edge-columns {given}: edges of {where} have {counted(len(names), 'column')} besides their ends"
            )
        name = name if equals else names[number]
        if name not in names:
            shown = ", ".join(names) or "none"
            raise ConfigError(
                f"--edge-columns {given}: edges of {where} have no column {name!r}; further ones: {shown}"
            )
        roles[name] = role
    return roles


def numbered(columns: EdgeColumns, names: Sequence[str]) -> EdgeColumns:
    """Translate `columns` by number to `names`, the names of all columns of a table without names of its own."""

    def number(name: int | str | None) -> int | None:
        return None if name is None else list(names).index(str(name))

    features = tuple(list(names).index(str(each)) for each in columns.features)
    weight, time, label = (number(each) for each in (columns.weight, columns.time, columns.label))
    return replace(columns, weight=weight, time=time, features=features, label=label)
