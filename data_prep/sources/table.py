"""Tables of edges and vertices in CSV or Parquet: a folder with edges.csv and vertices.csv, or a table of edges alone.

Ids may be texts. Vertices are numbered in the order of their table, or of their ids where there is none; their ids are
kept as names. The names of columns give their meaning, see data_prep/IMPORT.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from data_prep.assembly.id_map import Ids, Numbering, Place, TextNumbering, names_of, plain
from data_prep.assembly.vertex_rows import read_features, rows_held
from data_prep.edges.edge_records import Chunk
from data_prep.edges.edge_stream import EdgeStream, shares_of
from data_prep.edges.raw_graph import SPLIT_NAMES, RawGraph, ReadOptions, Source
from data_prep.formats.array_files import read_companions
from data_prep.formats.columns import (
    EdgeColumns,
    Table,
    TableColumns,
    edge_columns,
    first_of,
    labels_in,
    pieces_of_share,
    whole_numbers,
)
from data_prep.formats.tables import SUFFIXES, CsvTable, open_table
from data_prep.workspace import Workspace
from leapmpi.errors import ConfigError, DataError

SUMMARY = "folder with tables edges and vertices (or nodes), .csv, .tsv or .parquet; or a table of edges in .parquet"
OF_TABLES = frozenset({"features", "labels", "label_column", "edge_columns", "edge_labels", "vertex_times"})
"""Options of every source that is read as a table of edges and one of vertices."""
OPTIONS = OF_TABLES | {"vertex_table"}

_EDGES = ("edges",)
_VERTICES = ("vertices", "nodes")
_SOURCES = ("source", "src", "src_id", "from", "id_1")
_DESTINATIONS = ("destination", "target", "dst", "dst_id", "to", "id_2")
_IDS = ("id", "vertex_id", "node_id", "vertex", "node", "name")
_LABELS = ("label", "labels", "class", "y")
_SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_SPLITS |= {"": "", "none": ""}
_MASK_COLUMNS = tuple(f"{name}_mask" for name in SPLIT_NAMES)
_MASKS = {"0": False, "1": True, "false": False, "true": True}


def can_read(path: Path) -> bool:
    """Recognise a folder with both tables, or one Parquet file. CSV alone may be an edge list."""
    if path.is_dir():
        return _table(path, _EDGES) is not None and _table(path, _VERTICES) is not None
    return path.name.lower().endswith(".parquet") and path.is_file()


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph of the tables in the folder `path`, or of the table of edges `path`."""
    # The files: of a folder two, else one of edges.
    edge_file = _table(path, _EDGES) if path.is_dir() else path
    vertex_file = options.vertex_table or (_table(path, _VERTICES) if path.is_dir() else None)
    if edge_file is None or (path.is_dir() and vertex_file is None):
        raise DataError(f"{path} must hold tables called edges and vertices, each one of {', '.join(SUFFIXES)}")
    for file in filter(None, (edge_file, vertex_file)):
        if not file.name.lower().endswith(SUFFIXES):
            raise DataError(f"{file}: unknown kind of table; expected one of {', '.join(SUFFIXES)}")

    # Edges stay in their file until they are streamed; with a table of vertices, ids are known before.
    edges = open_table(edge_file, (*_SOURCES, *_DESTINATIONS))
    graph = graph_of(edges, vertex_file and open_table(vertex_file), options)
    graph.files = {edge_file.name: "edges"} | ({vertex_file.name: "vertices"} if vertex_file else {})
    return graph


def graph_of(edges: Table, vertices: Table | None, options: ReadOptions) -> RawGraph:
    """Build the graph of a table of edges and one of vertices, or of edges alone.

    Raises DataError naming table and row of a fault, ConfigError for a column that flags name in vain.
    """
    # Without a table of vertices, ids are numbered as edges name them.
    if vertices is None:
        if options.label_column:
            raise ConfigError(f"--label-column {options.label_column}: {edges.path} is a table of edges alone")
        ends = _ends(edges)
        carried = _carried(edges, ends, options)
        graph = _edges_alone(edges, ends, carried, options.workspace)
    else:
        graph, numbering = vertices_of(vertices, options)
        # A first row of texts that are not vertices has names of columns.
        if (
            isinstance(edges, CsvTable)
            and not edges.named
            and not any(end in numbering for end in edges.first_row()[:2])
        ):
            edges.take_names()
        ends = _ends(edges)
        carried = _carried(edges, ends, options)
        graph.edges = edge_stream(edges, ends, carried, numbering.numbers)
    graph.edges_name = str(edges.path)
    features, labels = read_companions(options)
    graph.features = graph.features if features is None else features
    graph.labels, graph.class_names = (graph.labels, graph.class_names) if labels is None else (labels, None)
    # Every column that is not used is counted in a note.
    further = len(edges.names) + len(edges.unread) - 2 - len(carried.all)
    if further:
        hint = "" if options.edge_columns else " (--edge-columns names them)"
        graph.notes.append(f"{edges.path.name}: {further} further columns are not used{hint}")
    return graph


def _table(folder: Path, stems: Sequence[str]) -> Path | None:
    """Find the first table in `folder` with one of the names `stems`, or None."""
    files = (folder / f"{stem}{suffix}" for stem in stems for suffix in SUFFIXES)
    return next((file for file in files if file.is_file()), None)


def _ends(edges: Table) -> list[str]:
    """Find the columns of sources and of destinations: by name, else the first two."""
    names = [first_of(edges.names, _SOURCES), first_of(edges.names, _DESTINATIONS)]
    if None in names:
        names = edges.names[:2]
    if len(names) < 2:
        raise DataError(f"{edges.path} has one column; edges need two vertex ids per row")
    return names


def _carried(edges: Table, ends: list[str], options: ReadOptions) -> EdgeColumns:
    """Find the columns of edge data, by their names or by --edge-columns and --edge-labels."""
    others = [name for name in edges.names if name not in ends]
    columns = edge_columns(others, options.edge_columns, str(edges.path), named=True, label=options.edge_labels)
    if columns.time is None or columns.time in edges.integers:
        return columns
    first = next(edges.batches([str(columns.time)]), None)
    values = [] if first is None else first.columns[str(columns.time)]
    return columns.with_first_time(str(values[0]) if len(values) else "")


def edge_stream(
    edges: Table, ends: list[str], carried: EdgeColumns, numbered: Callable[[Ids, Place], np.ndarray]
) -> EdgeStream:
    """Stream the edges in the columns `ends`, their ids `numbered` whichever are read before, with their data."""
    chunks = partial(_edge_chunks, edges, ends, carried, numbered)
    return EdgeStream(chunks, carries=carried.dtype, share=shares_of(chunks) if edges.pieces > 1 else None)


def _edge_chunks(
    edges: Table,
    ends: list[str],
    carried: EdgeColumns,
    numbered: Callable[[Ids, Place], np.ndarray],
    share: tuple[int, int] = (0, 1),
) -> Iterator[Chunk]:
    """Yield the edges int64[2, k] by batches, of all pieces of the table or a share of them."""
    rows = 0
    for batch in edges.batches([*ends, *map(str, carried.all)], pieces_of_share(edges, share)):
        chunk = np.stack([numbered(batch.columns[name], batch.place) for name in ends])
        yield (chunk, carried.of_batch(batch)) if carried else chunk
        rows += batch.rows
    if rows == 0 and share == (0, 1):
        raise DataError(f"{edges.path} holds no edges")


def _edges_alone(edges: Table, ends: list[str], carried: EdgeColumns, workspace: Workspace | None) -> RawGraph:
    """Build the graph of a table of edges; its vertices are counted and numbered as it streams by."""
    if edges.integers.issuperset(ends):
        stream = edge_stream(edges, ends, carried, plain)
        return RawGraph(lambda largest, count: largest + 1, stream, compact=True)

    # Ids of texts are numbered while they stream by; the final numbers follow once all are known.
    numbering = TextNumbering(workspace)
    stream = EdgeStream(
        lambda: _edge_chunks(edges, ends, carried, numbering.provisional), final=numbering.final, carries=carried.dtype
    )
    graph = RawGraph(0, stream)

    def vertices(largest: int, count: int) -> int:
        graph.names = numbering.finish()
        return largest + 1

    graph.vertices = vertices
    return graph


def vertices_of(table: Table, options: ReadOptions) -> tuple[RawGraph, Numbering]:
    """Read labels, splits and features of the rows of `table`, edges left empty, and the numbers of their ids."""
    if not table.names:
        raise DataError(f"{table.path} has no column of ids")

    # Which column is what, by name.
    id_column = first_of(table.names, _IDS) or table.names[0]
    rest = [name for name in table.names if name != id_column]
    if options.label_column is not None and options.label_column not in rest:
        raise ConfigError(
            f"--label-column {options.label_column}: {table.path} has the columns {', '.join(table.names)}"
        )
    label = options.label_column or first_of(table.names, _LABELS)
    if options.vertex_times is not None and options.vertex_times not in rest:
        raise ConfigError(
            f"--vertex-times {options.vertex_times}: neither a file nor a column of {table.path}, which has "
            f"{', '.join(table.names)}"
        )
    split_columns = [first_of(table.names, (name,)) for name in ("split", *_MASK_COLUMNS)]

    # Ids, classes and splits are held; other columns of numbers are features.
    held = rows_held(
        table,
        id_column,
        [name for name in rest if name in (label, options.vertex_times, *split_columns)],
        options.workspace,
    )
    numbering = Numbering(held.columns[id_column], held.place)
    labels, class_names = labels_in(held, label, options.task) if label in held.columns else (None, None)
    others = [name for name in rest if name not in held.columns]
    features, texts, unread = read_features(table, others, held.rows, options.workspace)

    # What was left out.
    notes = [f"{table.path.name}: not used: {', '.join(unread)}"] if unread else []
    if texts:
        notes.append(f"{table.path.name}: not numbers, not used as features: {', '.join(texts)}")
    graph = RawGraph(
        vertices=held.rows,
        edges=np.empty((2, 0), np.int64),
        features=features,
        labels=labels,
        times=_times(held, options.vertex_times),
        splits=_splits(held),
        split_origin=table.path.name,
        notes=notes,
        names=names_of(numbering.ids),
        class_names=class_names,
    )
    return graph, numbering


def _times(held: TableColumns, name: str | None) -> np.ndarray | None:
    """Return the column `name` as numbers, None without. Raises DataError for a field that is not a number."""
    if name is None:
        return None
    return whole_numbers(held, name, "whole number; every vertex needs a time")


def _splits(table: TableColumns) -> dict[str, np.ndarray] | None:
    """Return the splits in a column `split`, or in masks."""
    if column := first_of(table.columns, ("split",)):
        codes = np.array(_meanings(table, column, _SPLITS, "split {} is none of train, val, test and empty"))
        return {name: codes == name for name in SPLIT_NAMES if (codes == name).any()} or None
    masks = {name: first_of(table.columns, (mask,)) for name, mask in zip(SPLIT_NAMES, _MASK_COLUMNS, strict=True)}
    found = {
        name: np.array(_meanings(table, column, _MASKS, f"{column} is {{}}; expected 0 or 1"), bool)
        for name, column in masks.items()
        if column
    }
    return found or None


def _meanings(table: TableColumns, column: str, known: dict[str, object], fault: str) -> list:
    """Translate the words in `column` by `known`. Raises DataError, with `fault` about the word, for another."""
    words = [str(word).strip().lower() for word in table.columns[column]]
    bad = next((row for row, word in enumerate(words) if word not in known), None)
    if bad is not None:
        raise DataError(f"{table.place(bad)}: {fault.format(repr(words[bad][:40]))}")
    return [known[word] for word in words]


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
