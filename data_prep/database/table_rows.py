"""The rows of one table: their times, their primary keys, and the rows of other tables that their foreign keys name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import types

from data_prep.database.column_values import NEVER, times_in
from data_prep.database.row_keys import KeyTable, keys_of, kind_of
from data_prep.database.table_schema import ForeignKey, TableSchema
from data_prep.edges.edge_stream import EdgeStream
from data_prep.formats.arrow_tables import ArrowTable, open_arrow_table
from data_prep.formats.chosen_columns import matching_files
from data_prep.workspace import Workspace
from leapmpi.errors import DataError, counted

DANGLING, DUPLICATE, NO_TIME = "dangling", "duplicate", "no-time"
FAULTS = (DANGLING, DUPLICATE, NO_TIME)
"""Faults of rows that --refuse names."""

ALWAYS = np.iinfo(np.int64).min
"""Time of the rows of a table without times: they are seen at any time."""

_EDGES_AT_ONCE = 1 << 20

FILE_OF_VECTORS = "file"
"""Option of the encoder `vector` that names an .npy file."""


@dataclass
class TableRows:
    """A table that is being read.

    times: int64[rows], or None; by_key: rows by primary key, where a foreign key names the table. parents: by foreign
    key int64[rows], the row that it names, or -1. counts: what is noted about its faults, in words.
    """

    schema: TableSchema
    table: ArrowTable
    times: np.ndarray | None = None
    by_key: KeyTable | None = None
    parents: dict[str, np.ndarray] = field(default_factory=dict)
    counts: list[str] = field(default_factory=list)
    vectors: dict[str, np.ndarray] = field(default_factory=dict)
    """By name, columns that are not in the table but in .npy files: numbers [rows, width], mapped."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.table.rows

    def check_columns(self) -> None:
        """Raise DataError for a column of the schema that the table does not have."""
        wanted = [*self.schema.primary_key, *(name for key in self.schema.foreign_keys for name in key.columns)]
        wanted += [each.column for each in self.schema.columns]
        wanted += [self.schema.time] if self.schema.time else []
        if label := self.schema.label:
            wanted += [*label.columns, *([label.split] if label.split else [])]
            if twice := {*label.columns} & {each.column for each in self.schema.columns}:
                raise DataError(
                    f"{self.schema.where}: {min(twice)!r} is the label; as a feature it would give itself away"
                )
        for name in wanted:
            if name not in self.table.schema.names and name not in self.vectors:
                known = ", ".join(self.table.schema.names)
                raise DataError(f"{self.schema.where}: the table has no column {name!r}; it has {known}")

    def name_of(self, column: str) -> str:
        """Return what messages call a column."""
        return f"table {self.schema.name}, column {column!r}"

    def batches(self, columns: Collection[str]) -> Iterator[tuple[slice, dict[str, pyarrow.Array]]]:
        """Yield the numbers of some rows, and their `columns` by name."""
        first, names = 0, [name for name in dict.fromkeys(columns) if name not in self.vectors]
        beside = [name for name in dict.fromkeys(columns) if name in self.vectors]
        # Without a column of the table its rows are counted by any of them.
        for batch in self.table.batches(names or self.table.schema.names[:1]):
            place = slice(first, first + batch.num_rows)
            found = dict(zip(names, batch.columns, strict=False))
            yield place, found | {name: _as_lists(self.vectors[name][place]) for name in beside}
            first += batch.num_rows

    def read_keys_and_times(self, workspace: Workspace, refused: Collection[str]) -> None:
        """Read times and primary keys. Raises DataError for a fault that is among those `refused`."""
        schema = self.schema
        if not schema.primary_key and not schema.time:
            return
        name = self.name_of(", ".join(schema.primary_key))
        keys = self.by_key = KeyTable(self.rows, workspace) if schema.primary_key else None
        times = self.times = workspace.array("times", (self.rows,), np.int64) if schema.time else None
        # Faults are counted over all batches, and reported once with the first row.
        without, first_without = 0, -1
        for rows, columns in self.batches([*schema.primary_key, *([schema.time] if schema.time else [])]):
            if keys is not None:
                keys.add(*keys_of([columns[each] for each in schema.primary_key], name))
            if times is not None:
                found = times_in(columns[schema.time], self.name_of(schema.time))
                times[rows] = found
                if (missing := found == NEVER).any():
                    first_without = rows.start + int(np.argmax(missing)) if not without else first_without
                    without += int(missing.sum())
        if keys is not None:
            self._note(keys.repeated, keys.first_repeated, DUPLICATE, refused)
            self.counts += [f"{keys.missing:,} without a primary key"] if keys.missing else []
        self._note(without, first_without, NO_TIME, refused)

    def match(
        self, key: ForeignKey, others: Mapping[str, TableRows], workspace: Workspace, refused: Collection[str]
    ) -> None:
        """Find the row that a foreign key of each row names. Raises DataError where the kinds of keys differ."""
        other, name = others[key.table], self.name_of(", ".join(key.columns))
        for mine, theirs in zip(key.columns, other.schema.primary_key, strict=True):
            kinds = [_key_kind(rows, column) for rows, column in ((self, mine), (other, theirs))]
            if None not in kinds and kinds[0] != kinds[1]:
                raise DataError(
                    f"{self.name_of(mine)} holds {kinds[0]}, but the key {theirs!r} of {key.table} holds {kinds[1]}; "
                    'save them alike, or list CSV columns of texts that look like numbers under text = ["COLUMN"]'
                )
        assert other.by_key is not None
        # Row numbers of the other table, in as few bytes as hold them.
        dtype = np.int32 if other.rows < 2**31 else np.int64
        parents = self.parents[key.name] = workspace.array("parents", (self.rows,), dtype)
        dangling, first, missing = 0, -1, 0
        for rows, columns in self.batches(key.columns):
            keys, there = keys_of([columns[each] for each in key.columns], name)
            found, lost = other.by_key.rows_of(keys, there)
            parents[rows] = found
            if lost and not dangling:
                first = rows.start + int(np.argmax((found < 0) & there))
            dangling += lost
            missing += len(there) - int(there.sum())
        self._note(dangling, first, DANGLING, refused, key.name)
        self.counts += [f"{missing:,} without {key.name}"] if missing else []

    def _note(self, count: int, row: int, fault: str, refused: Collection[str], key: str = "") -> None:
        """Note `count` rows with a fault, the first of them `row`. Raises DataError where the fault is refused."""
        if not count:
            return
        words = {
            DANGLING: f"{key} names no row of its table",
            DUPLICATE: "primary key of an earlier row",
            NO_TIME: "no time",
        }
        if fault in refused:
            raise DataError(
                f"table {self.schema.name}: {counted(count, 'row')} with this fault: {words[fault]}; the first is row "
                f"{row} "
                f"(counted from 0); mend them, or, with import, leave {fault} out of --refuse"
            )
        self.counts.append(f"{count:,} with {words[fault]}" if fault != DANGLING else f"{count:,} whose {words[fault]}")

    def edges_to(self, key: str) -> EdgeStream:
        """Return the edges from rows to the rows that foreign key `key` names."""
        return EdgeStream(lambda: _edges(self.parents[key], 0))

    def edges_from(self, key: str) -> EdgeStream:
        """Return the same edges the other way."""
        return EdgeStream(lambda: _edges(self.parents[key], 1))


def _as_lists(rows: np.ndarray) -> pyarrow.Array:
    """Return rows [n, width] of numbers as a column of lists."""
    flat = pyarrow.array(np.ascontiguousarray(rows, np.float32).reshape(-1))
    return pyarrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])


def _key_kind(rows: TableRows, column: str) -> str | None:
    """Return what a column of keys holds; None where all its values are missing."""
    kind = rows.table.schema.field(column).type
    return None if types.is_null(kind) else kind_of(kind, rows.name_of(column))


def _edges(parents: np.ndarray, parents_are: int) -> Iterator[np.ndarray]:
    """Yield rows and `parents` [rows] as edges int64[2, k]: parents are sources (1) or destinations (0)."""
    for start in range(0, len(parents), _EDGES_AT_ONCE):
        some = np.asarray(parents[start : start + _EDGES_AT_ONCE])
        there = some >= 0
        rows = np.arange(start, start + len(some))
        ends = (rows, some) if there.all() else (rows[there], some[there])
        yield np.stack(ends[::-1] if parents_are else ends, dtype=np.int64, casting="same_kind")


def opened(schema: TableSchema, files: Sequence[Path], workspace: Workspace, source: Path | None = None) -> TableRows:
    """Open the table of `schema` in `files`, and vectors of its rows in files of the folder `source`.

    Raises DataError for a missing column, or vectors of another number of rows.
    """
    rows = TableRows(schema, open_arrow_table(schema.name, files, workspace, schema.text))
    for each in schema.columns:
        if name := each.options.get(FILE_OF_VECTORS):
            rows.vectors[each.column] = _vectors(str(name), source, rows, rows.name_of(each.column))
    rows.check_columns()
    return rows


def _vectors(name: str, source: Path | None, rows: TableRows, column: str) -> np.ndarray:
    """Map the .npy file `name` of the folder `source`, or from here: a row for each row of the table."""
    (path,) = matching_files([name], source or Path(), column)
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{column}: {path} cannot be read as an .npy file ({error})") from None
    if found.ndim != 2 or len(found) != rows.rows or found.dtype.kind not in "iuf" or not found.shape[1]:
        raise DataError(
            f"{column}: {path} holds {found.dtype} of shape {list(found.shape)}; expected a row of numbers for each of "
            f"the table's {counted(rows.rows, 'row')}, in their order"
        )
    return found
