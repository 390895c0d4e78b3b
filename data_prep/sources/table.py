"""Tables of edges and vertices in CSV or Parquet: a folder with edges.csv and vertices.csv, or a table of edges alone.

Ids may be texts. Vertices are numbered in the order of their table, or of their ids where there is none; their ids are
kept as names. Which columns hold what is told by their names, see data_prep/README.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_prep.classes import class_numbers
from data_prep.columns import SUFFIXES, Columns, is_columns, read_columns
from data_prep.numbering import Numbering
from data_prep.raw_graph import SPLIT_NAMES, RawGraph, ReadOptions
from leapmpi.errors import ConfigError, DataError

SUMMARY = "folder with tables edges and vertices (or nodes), .csv, .tsv or .parquet; or a table of edges in .parquet"
OPTIONS = frozenset({"label_column"})

_EDGES, _VERTICES = ("edges",), ("vertices", "nodes")
_SOURCES = ("source", "src", "src_id", "from", "id_1")
_DESTINATIONS = ("destination", "target", "dst", "dst_id", "to", "id_2")
_IDS = ("id", "vertex_id", "node_id", "vertex", "node", "name")
_LABELS = ("label", "labels", "class", "y")
_SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_NO_SPLIT = ("", "none")
_MASKS = {"0": False, "1": True, "false": False, "true": True}


def can_read(path: Path) -> bool:
    """Whether `path` is a folder with tables of edges and of vertices, or a Parquet file."""
    if path.is_dir():
        return _table(path, _EDGES) is not None and _table(path, _VERTICES) is not None
    return path.name.lower().endswith(".parquet") and path.is_file()


def read(path: Path, options: ReadOptions) -> RawGraph:
    """The graph of the tables in the folder `path`, or of the table of edges `path`.

    Raises DataError naming file and line (row in Parquet) of the first fault, ConfigError when pyarrow is needed.
    """
    edge_file = _table(path, _EDGES) if path.is_dir() else path
    vertex_file = _table(path, _VERTICES) if path.is_dir() else None
    if edge_file is None or (path.is_dir() and vertex_file is None):
        raise DataError(f"{path} must hold tables called edges and vertices, each one of {', '.join(SUFFIXES)}")
    if not is_columns(edge_file):
        raise DataError(f"{edge_file}: unknown kind of table; expected one of {', '.join(SUFFIXES)}")
    edges = read_columns(edge_file, (*_SOURCES, *_DESTINATIONS))
    ends = _ends(edges)
    if vertex_file is None:
        if options.label_column:
            raise ConfigError(f"--label-column {options.label_column}: {path} is a table of edges alone")
        numbering = Numbering.of_edges(ends, edges.place)
        graph = RawGraph(len(numbering.ids), np.empty((2, 0), np.int64))
    else:
        table = read_columns(vertex_file)
        id_column = table.first_of(_IDS) or next(iter(table.columns), None)
        if id_column is None:
            raise DataError(f"{vertex_file} has no column of ids")
        numbering = Numbering.of_table(table.columns[id_column], table.place)
        graph = _vertex_data(table, id_column, options.label_column)
    graph.edges = np.stack([numbering.numbers(ids, edges.place) for ids in ends])
    graph.names = numbering.names()
    graph.edges_name = str(edge_file)
    further = len(edges.columns) + len(edges.unread) - 2
    if further:
        graph.notes.append(f"{edge_file.name}: {further} further columns are not used")
    return graph


def _table(folder: Path, stems: Sequence[str]) -> Path | None:
    files = (folder / f"{stem}{suffix}" for stem in stems for suffix in SUFFIXES)
    return next((file for file in files if file.is_file()), None)


def _ends(edges: Columns) -> list:
    """The columns of sources and of destinations: by name, else the first two."""
    names = [edges.first_of(_SOURCES), edges.first_of(_DESTINATIONS)]
    if None in names:
        names = list(edges.columns)[:2]
    if len(names) < 2:
        raise DataError(f"{edges.path} has one column; edges need two vertex ids per row")
    if edges.rows == 0:
        raise DataError(f"{edges.path} holds no edges")
    return [edges.columns[name] for name in names]


def _vertex_data(table: Columns, id_column: str, label_column: str | None) -> RawGraph:
    """Labels, splits and features of the rows of `table`; edges are left empty."""
    notes = [f"{table.path.name}: not used: {', '.join(table.unread)}"] if table.unread else []
    rest = {name: column for name, column in table.columns.items() if name != id_column}
    if label_column is not None and label_column not in rest:
        raise ConfigError(f"--label-column {label_column}: {table.path} has the columns {', '.join(table.columns)}")
    label = label_column or table.first_of(_LABELS)
    labels, class_names = class_numbers(table, label) if label in rest else (None, None)
    rest.pop(label, None)
    splits = _splits(table, rest)
    features, texts = _features(table, rest)
    if texts:
        notes.append(f"{table.path.name}: not numbers, not used as features: {', '.join(texts)}")
    return RawGraph(
        vertices=table.rows,
        edges=np.empty((2, 0), np.int64),
        features=features,
        labels=labels,
        splits=splits,
        split_origin=table.path.name,
        notes=notes,
        class_names=class_names,
    )


def _splits(table: Columns, rest: dict) -> dict[str, np.ndarray] | None:
    """The splits in a column `split`, or in masks; their columns are taken out of `rest`."""
    column = table.first_of(("split",))
    if column in rest:
        words = [str(word).strip().lower() for word in rest.pop(column)]
        bad = next((row for row, word in enumerate(words) if word not in _SPLITS and word not in _NO_SPLIT), None)
        if bad is not None:
            raise DataError(f"{table.place(bad)}: split {words[bad][:40]!r} is none of train, val, test and empty")
        codes = np.array([_SPLITS.get(word, "") for word in words])
        return {name: codes == name for name in SPLIT_NAMES if (codes == name).any()} or None
    found = {}
    for name in SPLIT_NAMES:
        column = table.first_of((f"{name}_mask",))
        if column in rest:
            words = [str(word).strip().lower() for word in rest.pop(column)]
            bad = next((row for row, word in enumerate(words) if word not in _MASKS), None)
            if bad is not None:
                raise DataError(f"{table.place(bad)}: {column} is {words[bad][:40]!r}; expected 0 or 1")
            found[name] = np.array([_MASKS[word] for word in words], bool)
    return found or None


def _features(table: Columns, rest: dict) -> tuple[np.ndarray | None, list[str]]:
    """float32[n, F] of all columns of numbers in `rest` in their order, and the names of the others."""
    numeric, texts = [], []
    for name, column in rest.items():
        if isinstance(column, np.ndarray):
            numeric.append(column.astype(np.float32).reshape(table.rows, -1))
        elif (values := _numbers(table, name, column)) is not None:
            numeric.append(values[:, None])
        else:
            texts.append(name)
    return (np.concatenate(numeric, axis=1) if numeric else None), texts


def _numbers(table: Columns, name: str, column: list[str]) -> np.ndarray | None:
    """`column` as float32, or None when its first field is not a number."""
    out = np.empty(len(column), np.float32)
    for row, text in enumerate(column):
        try:
            out[row] = float(text)
        except ValueError:
            if row == 0:
                return None
            raise DataError(f"{table.place(row)}: {text[:40]!r} in column {name!r} is not a number") from None
    return out
