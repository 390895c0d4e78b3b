"""From tables with keys to a TypedRawGraph: rows to vertices, foreign keys to relations, columns to features."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.assembly.vertex_data import labelled
from data_prep.database.encoded_columns import LEARNED, category_rows, encoded, fitted
from data_prep.database.labels import labels_of, splits_of
from data_prep.database.table_rows import TableRows, opened
from data_prep.database.table_schema import TARGET, DatabaseSchema, EncodedColumn, TableSchema, stored_table
from data_prep.edges.edge_stream import EdgeStream
from data_prep.edges.typed_graph import REVERSE, RawRelation, RawVertices, TypedRawGraph
from data_prep.formats.arrow_tables import is_database, tables_in
from data_prep.formats.chosen_columns import matching_files
from data_prep.workspace import Workspace
from leapmpi.dataset.column_encoders import CLASSES
from leapmpi.errors import DataError, nearest

_TABLES, _UNTIL = "tables", "train_until"


def read_database(
    source: Path,
    schema: DatabaseSchema,
    workspace: Workspace,
    refused: Collection[str],
    stored: Mapping[str, Any] | None,
) -> TypedRawGraph:
    """Read the tables of the folder or database file `source` as their `schema` says.

    refused: faults of rows (table_rows.FAULTS) that are errors; others are counted in notes. stored: the encoders of a
    dataset, by which columns are encoded; None: they follow from the training period here. Raises DataError for the
    first fault.
    """
    tables = _opened(source, schema, workspace)
    for rows in tables.values():
        rows.read_keys_and_times(workspace, refused)
    # Keys of all tables come first: tables may name each other in circles.
    for rows in tables.values():
        for key in rows.schema.foreign_keys:
            rows.match(key, tables, workspace, refused)
    # Tables of keys are large, and but for those of the target's keys needed no more.
    named = {key.table for key in schema.tables[schema.target].foreign_keys} if schema.target else set()
    keys = {name: rows.by_key.all for name, rows in tables.items() if name in named and rows.by_key is not None}
    for rows in tables.values():
        rows.by_key = None

    # Vertices: those of categories first, so that their numbers are the same in tables of another size.
    graph = TypedRawGraph({}, [], target=schema.target, split_origin="schema")
    target = RawVertices(0) if schema.target is None else _labelled(tables[schema.target], stored, workspace)
    until = target.until if isinstance(target, _Labelled) else None
    states = _states(tables, schema.target, target, stored)
    for rows in tables.values():
        for each in rows.schema.columns:
            if each.encoder == LEARNED:
                known = states[rows.schema.name][each.column]["categories"]
                graph.vertices[_category_type(rows, each)] = RawVertices(len(known) + 1)
    # The target is last, so that new rows of it can follow (dataset/task_rows.py).
    for name, rows in sorted(tables.items(), key=lambda each: each[0] == schema.target):
        vertices = target if name == schema.target else RawVertices(rows.rows)
        vertices.features, vertices.times = encoded(rows, states[name], workspace), rows.times
        graph.vertices[name] = vertices
    for rows in tables.values():
        _relate(graph, rows, tables, states[rows.schema.name], workspace)
    graph.notes += [f"{name}: {', '.join(rows.counts)}" for name, rows in tables.items() if rows.counts]
    graph.keys, graph.times_of_sources = keys, True
    graph.encoders = {_TABLES: states, CLASSES: target.class_names, _UNTIL: until}
    if schema.target is not None:
        graph.encoders[TARGET] = stored_table(schema.tables[schema.target])
    return graph


class _Labelled(RawVertices):
    """Vertices of the target, with the end of the training period."""

    until: int | None = None


def _opened(source: Path, schema: DatabaseSchema, workspace: Workspace) -> dict[str, TableRows]:
    """Open all tables of the schema. Raises DataError for one that the source does not have."""
    there = tables_in(source)
    found: dict[str, TableRows] = {}
    for name, each in schema.tables.items():
        folder = source if source.is_dir() else source.parent
        found[name] = opened(each, _files(source, there, each), workspace, folder)
    return found


def _files(source: Path, there: dict[str, list[Path]], schema: TableSchema) -> list[Path]:
    if schema.files is not None and not is_database(source):
        return matching_files(schema.files, source, schema.where)
    if schema.name not in there:
        raise DataError(f"{schema.where}: {source} has no table {schema.name!r}; {nearest(schema.name, there)}")
    return there[schema.name]


def _labelled(rows: TableRows, stored: Mapping[str, Any] | None, workspace: Workspace) -> _Labelled:
    """Return the vertices of the target with labels and splits."""
    labels, names = labels_of(rows, stored and stored[CLASSES], workspace)
    there = labelled(labels)
    found = _Labelled(rows.rows, labels=labels if there.any() else None, class_names=names)
    if names is not None:
        found.classes = len(names)
    found.splits, found.until = splits_of(rows, there, trains=stored is None)
    return found


def _states(
    tables: Mapping[str, TableRows], target: str | None, labelled_rows: RawVertices, stored: Mapping[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """Return the encoders' states by table and column: of the training period, or as they are stored."""
    if stored is None:
        splits = labelled_rows.splits or {}
        until = labelled_rows.until if isinstance(labelled_rows, _Labelled) else None
        return {
            name: fitted(rows, until, splits.get("train") if name == target else None) for name, rows in tables.items()
        }
    for name, rows in tables.items():
        known = stored[_TABLES].get(name)
        encoders = {each.column: each.encoder for each in rows.schema.columns}
        if known is None or {column: each["encoder"] for column, each in known.items()} != encoders:
            raise DataError(
                f"{rows.schema.where}: columns and encoders are not those of the dataset given by --encoders"
            )
    return {name: stored[_TABLES][name] for name in tables}


def _category_type(rows: TableRows, each: EncodedColumn) -> str:
    return f"{rows.schema.name}.{each.column}"


def _relate(
    graph: TypedRawGraph,
    rows: TableRows,
    tables: Mapping[str, TableRows],
    states: Mapping[str, Any],
    workspace: Workspace,
) -> None:
    """Add the relations of a table: from what its foreign keys name to its rows, back from rows that are seen."""
    name = rows.schema.name
    for key in rows.schema.foreign_keys:
        where, back = f"table {name}, foreign key {key.name}", f"{REVERSE}{key.name}"
        first = len(graph.relations)
        if rows.schema.seen:
            graph.relations.append(RawRelation(name, key.name, key.table, rows.edges_to(key.name), where))
        edges = rows.edges_from(key.name)
        of = first if rows.schema.seen else None
        graph.relations.append(RawRelation(key.table, back, name, edges, where, reverse_of=of))
    for each in rows.schema.columns:
        if each.encoder == LEARNED:
            codes = category_rows(rows, each, states[each.column], workspace)
            where = rows.name_of(each.column)
            relation = RawRelation(_category_type(rows, each), each.column, name, _category_edges(codes), where)
            graph.relations.append(relation)


def _category_edges(codes: np.ndarray) -> EdgeStream:
    """Return the edges from categories to rows."""

    def chunks():
        for start in range(0, len(codes), 1 << 20):
            some = np.asarray(codes[start : start + (1 << 20)])
            there = np.flatnonzero(some >= 0)
            yield np.stack([some[there], there + start]).astype(np.int64)

    return EdgeStream(chunks)
