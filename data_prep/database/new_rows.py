"""New rows of a task table for a dataset: encoded by its encoders, and joined to its vertices by their keys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import types as arrow_types

from data_prep.database.column_values import NEVER, plain, texts_in
from data_prep.database.encoded_columns import LEARNED, category_rows, encoded
from data_prep.database.row_keys import KeyTable, keys_of
from data_prep.database.table_rows import ALWAYS, TableRows, opened
from data_prep.database.table_schema import TARGET, ForeignKey, restored_table
from data_prep.database.user_functions import check_code
from data_prep.edges.typed_graph import REVERSE
from data_prep.workspace import Workspace
from leapmpi.dataset.column_encoders import read_encoders, read_keys
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.names import DATASET_FILE
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.task_rows import RowTexts, part_of_rows, target_at_end
from leapmpi.errors import DataError


@dataclass
class NewRows:
    """Rows of a task table in the form of a part: arrays by name, texts of their keys and times, and notes."""

    arrays: dict[str, np.ndarray]
    texts: RowTexts
    notes: list[str]

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.texts.rows)


@dataclass
class _Edges:
    """In-edges of new rows: by relation their sources (vertices of the dataset), rows and times."""

    relation: list[int] = field(default_factory=list)
    sources: list[np.ndarray] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)
    times: list[np.ndarray] = field(default_factory=list)

    def lists(self, rows: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the first edge of each row, int64[rows + 1], and sources, relations and times by row and relation."""
        relation = np.repeat(np.array(self.relation, np.int64), [len(each) for each in self.rows])
        nothing = [np.empty(0, np.int64)]
        row, sources, times = (np.concatenate(each or nothing) for each in (self.rows, self.sources, self.times))
        order = np.lexsort((relation, row))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))]).astype(np.int64)
        return indptr, [each[order] for each in (sources, relation, times)]


def new_rows(dataset: Dataset, source: Path, workspace: Workspace, code: Collection[str] = ()) -> NewRows:
    """Read the table in the file `source` as new rows of the target of `dataset`, a dataset of tables.

    code: functions of users that may run. Raises ConfigError where another one encodes a column; DataError for a
    missing column, a row without a time, or where no key is known.
    """
    path = dataset.folder / DATASET_FILE
    stored, keys = read_encoders(path, dataset.attributes), read_keys(path, dataset.attributes)
    if TARGET not in stored:
        raise DataError(f"{dataset.folder} has no table with a label; import the tables again with this version")
    schema = restored_table(stored[TARGET], str(source))
    states = stored["tables"][schema.name]
    functions = [(name, each["function"]) for name, each in states.items() if "function" in each]
    check_code(((f"{dataset.folder}: column {name!r} of {schema.name}", each) for name, each in functions), code)
    rows, notes = opened(schema, [source], workspace), []
    if not rows.rows:
        raise DataError(f"{source} has no rows")
    rows.read_keys_and_times(workspace, ["no-time"])

    # Each foreign key is a relation from what it names; a learned category is one from its vertex.
    edges, number = _Edges(), {str(each): r for r, each in enumerate(target_at_end(dataset).relations)}
    for key in schema.foreign_keys:
        parents, note = _matched(rows, key, KeyTable.of(*keys[key.table], workspace))
        notes += note
        _relate(edges, dataset, number[f"{key.table}:{REVERSE}{key.name}:{schema.name}"], key.table, parents)
    for each in schema.columns:
        if each.encoder == LEARNED:
            kind, codes = f"{schema.name}.{each.column}", category_rows(rows, each, states[each.column], workspace)
            _relate(edges, dataset, number[f"{kind}:{each.column}:{schema.name}"], kind, codes)
    indptr, lists = edges.lists(rows.rows)
    arrays = part_of_rows(dataset, indptr, lists)
    if dataset.has_vertex_time:
        arrays[names.VERTEX_TIME] = np.full(rows.rows, ALWAYS) if rows.times is None else np.asarray(rows.times)
    arrays |= _features(dataset, encoded(rows, states, workspace))
    return NewRows(arrays, _texts(rows), notes + _period(rows))


def _matched(rows: TableRows, key: ForeignKey, table: KeyTable) -> tuple[np.ndarray, list[str]]:
    """Return the row of its table that foreign key `key` of each row names, int64[rows], -1 without one, and notes."""
    found = np.empty(rows.rows, np.int64)
    missing = dangling = 0
    for place, columns in rows.batches(key.columns):
        words, there = keys_of([columns[each] for each in key.columns], rows.name_of(", ".join(key.columns)))
        found[place], lost = table.rows_of(words, there)
        dangling += lost
        missing += len(there) - int(there.sum())
    if dangling == rows.rows:
        raise DataError(
            f"{rows.schema.where}: no {key.name} names a row of {key.table}; save keys of the same type as there"
        )
    notes = [f"{missing:,} rows without {key.name}"] if missing else []
    return found, notes + ([f"{dangling:,} rows whose {key.name} names no row of {key.table}"] if dangling else [])


def _relate(edges: _Edges, dataset: Dataset, relation: int, kind: str, parents: np.ndarray) -> None:
    """Add the edges of one relation to new rows from the vertices of type `kind` with the numbers `parents`."""
    assert dataset.types is not None, "the dataset is typed"
    assert dataset.type_offsets is not None, "typed datasets say where types begin"
    t = [each.name for each in dataset.types.vertices].index(kind)
    vertex = np.full(dataset.types.vertices[t].vertices, -1, np.int64)
    time = np.full(len(vertex), ALWAYS)
    # Vertices of a type have their numbers in each part.
    for p in range(dataset.parts):
        part, (first, end) = dataset.part(p), dataset.type_offsets[p, t : t + 2].tolist()
        section = slice(first - int(dataset.offsets[p]), end - int(dataset.offsets[p]))
        places = part.original_id[section] - dataset.types.bases[t]
        vertex[places] = np.arange(first, end)
        if part.time is not None:
            time[places] = part.time[section]
    # A vertex that the graph has left out, outside of its largest component, is not a neighbour.
    there = np.flatnonzero((parents >= 0) & (vertex[parents] >= 0))
    edges.relation.append(relation)
    edges.rows.append(there)
    edges.sources.append(vertex[parents[there]])
    edges.times.append(time[parents[there]])


def _features(dataset: Dataset, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the features of a part of target rows: those of other types have no rows. Raises DataError for int8."""
    types = target_at_end(dataset)
    found: dict[str, np.ndarray] = {}
    # A part has an array for each type, here an empty one for all but the target.
    for t, each in enumerate(types.vertices):
        if each.feature_dtype is None:
            continue
        dtype = np.dtype(names.FEATURE_DTYPES[each.feature_dtype])
        found[names.type_features(t)] = np.empty((0, each.feature_dim), dtype)
        if each.feature_dtype == "int8":
            typed = dataset.part(0).typed
            assert typed is not None, "the dataset is typed"
            scale = typed.scales[t]
            assert scale is not None, "int8 features have steps"
            found[names.type_scale(t)] = scale
    # Encoders write float32; other types would need the steps of the rows that are there.
    last = types.vertices[-1]
    if last.feature_dtype not in ("float32", "float16"):
        raise DataError(
            f"{dataset.folder} holds {last.name} as {last.feature_dtype}; new rows need float32: import the tables "
            f"with --feature-dtype {last.name}=float32"
        )
    found[names.type_features(len(types.vertices) - 1)] = rows.astype(names.FEATURE_DTYPES[last.feature_dtype])
    return found


def _texts(rows: TableRows) -> RowTexts:
    """Return the texts of primary key, foreign keys and time of each row, by which predictions are written."""
    schema = rows.schema
    wanted = [*schema.primary_key, *(each for key in schema.foreign_keys for each in key.columns)]
    columns = list(dict.fromkeys([*wanted, *([schema.time] if schema.time else [])]))
    found: list[list[str]] = []
    for _, values in rows.batches(columns):
        texts = [[each or "" for each in _as_texts(values[name])] for name in columns]
        found += [list(row) for row in zip(*texts, strict=True)]
    return RowTexts(columns, found)


def _as_texts(column: Any) -> list[str | None]:
    """Return the values of a column as texts, None where one is missing."""
    if arrow_types.is_binary(column.type) or arrow_types.is_large_binary(column.type):
        return [None if each is None else each.hex() for each in column.to_pylist()]
    return texts_in(plain(column)).to_pylist()


def _period(rows: TableRows) -> list[str]:
    """Return a note about the first and the last time."""
    if rows.times is None:
        return []
    ends = [int(each) for each in (rows.times.min(), rows.times.max())]
    assert ends[1] != NEVER, "rows without a time are refused"
    kind = rows.table.schema.field(rows.schema.time).type
    if arrow_types.is_integer(kind):
        return [f"times {ends[0]:,} to {ends[1]:,}"]
    days = [datetime.fromtimestamp(each, UTC).isoformat(" ", "minutes")[:16] for each in ends]
    return [f"times {days[0]} to {days[1]} UTC"]
