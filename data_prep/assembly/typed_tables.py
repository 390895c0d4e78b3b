"""Typed graphs in tables: some files for each type of vertices and each relation, as a description names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.assembly.id_map import Numbering, names_of
from data_prep.assembly.transforms import CATEGORICAL, KNOWN, NOOP, categories, transformed
from data_prep.assembly.vertex_rows import read_features, rows_held
from data_prep.edges.edge_records import Chunk
from data_prep.edges.edge_stream import EdgeStream, shares_of
from data_prep.edges.raw_graph import SPLIT_NAMES, ReadOptions
from data_prep.edges.typed_graph import RawRelation, RawVertices, TypedRawGraph
from data_prep.formats.chosen_columns import ChosenColumns
from data_prep.formats.columns import EdgeColumns, TableColumns, labels_in, pieces_of_share
from leapmpi.errors import DataError, counted

_SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


@dataclass(frozen=True)
class FeatureColumns:
    """Columns of features with the transformation of all of them, as gconstruct describes it."""

    columns: tuple[str, ...]
    transform: Mapping[str, Any] = field(default_factory=lambda: {"name": NOOP})


@dataclass(frozen=True)
class VertexTable:
    """A table of vertices of one type: files, and names of columns.

    where: how messages call it. id: None where vertices are numbered by rows. count: their number, of a type without
    files.
    """

    where: str
    files: list[Path]
    id: str | None = None
    features: tuple[FeatureColumns, ...] = ()
    label: str | None = None
    split: str | None = None
    time: str | None = None
    count: int | None = None
    task: str | None = None


@dataclass(frozen=True)
class EdgeTable:
    """A table of edges of one relation: files, and names of columns."""

    where: str
    relation: tuple[str, str, str]
    files: list[Path]
    source: str
    destination: str
    carried: EdgeColumns


def read_tables(
    vertices: Mapping[str, Sequence[VertexTable]], edges: Sequence[EdgeTable], options: ReadOptions
) -> tuple[TypedRawGraph, dict[str, Numbering]]:
    """Read the tables of each type and relation; also return the numbers of ids by type.

    Further tables of a type have rows in the order of the first. Raises DataError for the first fault.
    """
    graph = TypedRawGraph({}, [])
    numbering: dict[str, Numbering] = {}
    for name, tables in vertices.items():
        graph.vertices[name], numbering[name] = _vertices(name, tables, options)
    for table in edges:
        source, _, destination = table.relation
        if missing := {source, destination} - set(graph.vertices):
            raise DataError(f"{table.where} names the type {min(missing)!r}, which has no table of vertices")
        columns = {"source": table.source, "destination": table.destination}
        chosen = ChosenColumns(table.files, {**columns, **{str(name): str(name) for name in table.carried.all}})
        numbers = numbering[source], numbering[destination]
        # A stream, which reads the files when edges are sorted: tables of edges may be larger than memory.
        chunks = _Chunks(chosen, numbers, table.carried)
        share = shares_of(chunks) if chosen.pieces > 1 else None
        stream = EdgeStream(chunks, carries=table.carried.dtype, share=share)
        graph.relations.append(RawRelation(*table.relation, stream, str(table.files[0])))
    return graph, numbering


class _Chunks:
    """The edges in a table: sources and destinations with numbers of their own types, and what they carry."""

    def __init__(self, table: ChosenColumns, numbers: tuple[Numbering, Numbering], carried: EdgeColumns) -> None:
        self._table, self._numbers, self._carried = table, numbers, carried

    def __call__(self, share: tuple[int, int] = (0, 1)) -> Iterator[Chunk]:
        names = ("source", "destination")
        pieces = pieces_of_share(self._table, share)
        for batch in self._table.batches([*names, *map(str, self._carried.all)], pieces):
            ends = zip(self._numbers, names, strict=True)
            chunk = np.stack([each.numbers(batch.columns[name], batch.place) for each, name in ends])
            yield (chunk, self._carried.of_batch(batch)) if self._carried else chunk


def _vertices(name: str, tables: Sequence[VertexTable], options: ReadOptions) -> tuple[RawVertices, Numbering]:
    """Read the vertices of one type."""
    first = tables[0]
    if first.count is not None:
        return RawVertices(first.count), Numbering(np.arange(first.count), lambda row: f"{first.where}, row {row}")
    # Tables of one type hold columns of the same rows, in the same order.
    blocks: list[np.ndarray] = []
    found, numbering = RawVertices(-1), None
    for table in tables:
        rows, ids = _held(table, found, options)
        if found.count not in (-1, rows):
            raise DataError(
                f"{table.where}: its files have {counted(rows, 'row')}, but those of type {name} before {found.count:,}"
            )
        found.count = rows
        numbering = numbering or ids
        blocks += [_features(table, each, rows, options) for each in table.features]
    assert numbering is not None, "there is a first table"
    found.names = names_of(numbering.ids)
    found.features = _joined(blocks, found.count, options)
    return found, numbering


def _held(table: VertexTable, found: RawVertices, options: ReadOptions) -> tuple[int, Numbering]:
    """Read ids, labels, splits and times of a table into `found`; return its rows and the numbers of its ids."""
    chosen = {"id": table.id, "label": table.label, "split": table.split, "time": table.time}
    columns = {role: name for role, name in chosen.items() if name is not None}
    # Without ids, rows are counted by a column that is there anyway.
    if not columns:
        columns = {"id": next((each.columns[0] for each in table.features), "")}
        if not columns["id"]:
            raise DataError(f"{table.where} names no columns; state the number of vertices by count instead of files")
    first = next(iter(columns))
    held = rows_held(
        ChosenColumns(table.files, columns), first, [each for each in columns if each != first], options.workspace
    )
    if table.label is not None:
        found.labels, found.class_names = labels_in(held, "label", options.task or table.task)
    if table.split is not None:
        found.splits = _splits(held)
    if table.time is not None:
        found.times = _times(held)
    ids = held.columns["id"] if table.id is not None else np.arange(held.rows)
    return held.rows, Numbering(ids, held.place)


def _splits(held: TableColumns) -> dict[str, np.ndarray] | None:
    """Return the splits in the column `split`: train, val, test or nothing."""
    words = [str(word).strip().lower() for word in held.columns["split"]]
    bad = next((row for row, word in enumerate(words) if word and word not in _SPLIT_WORDS), None)
    if bad is not None:
        raise DataError(f"{held.place(bad)}: split {words[bad][:40]!r} is none of train, val, test and empty")
    codes = np.array([_SPLIT_WORDS.get(word, "") for word in words])
    return {name: codes == name for name in SPLIT_NAMES if (codes == name).any()} or None


def _times(held: TableColumns) -> np.ndarray:
    column = held.columns["time"]
    try:
        return column if isinstance(column, np.ndarray) else np.array(column, np.int64)
    except (ValueError, OverflowError):
        raise DataError(f"{held.place(0)}: in this row or below, the time is not a whole number") from None


def _features(table: VertexTable, each: FeatureColumns, rows: int, options: ReadOptions) -> np.ndarray:
    """Read columns of features and transform them: float32[rows, k]."""
    kind = each.transform.get("name", NOOP)
    where = f"{table.where}: feature {', '.join(each.columns)}"
    if kind not in KNOWN:
        raise DataError(f"{where} is transformed by {kind!r}, which leapmpi-prep cannot do; it can {', '.join(KNOWN)}")
    chosen = ChosenColumns(table.files, {name: name for name in each.columns})
    if kind == CATEGORICAL:
        held = rows_held(chosen, each.columns[0], [], options.workspace)
        return categories([str(text) for text in held.columns[each.columns[0]]], each.transform, where)
    found, texts, unread = read_features(chosen, each.columns, rows, options.workspace)
    if texts or unread or found is None:
        raise DataError(f"{where}: column {(texts or unread or list(each.columns))[0]!r} holds no numbers")
    return found if kind == NOOP else transformed(found, each.transform, where)


def _joined(blocks: list[np.ndarray], rows: int, options: ReadOptions) -> np.ndarray | None:
    """Put all columns beside each other."""
    if len(blocks) < 2:
        return blocks[0] if blocks else None
    shape = rows, sum(block.shape[1] for block in blocks)
    out = options.workspace.array("columns", shape, np.float32) if options.workspace else np.empty(shape, np.float32)
    at = 0
    for block in blocks:
        out[:, at : at + block.shape[1]] = block
        at += block.shape[1]
    return out
