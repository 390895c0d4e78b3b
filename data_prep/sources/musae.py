"""Folders of MUSAE and FEATHER (Rozemberczki et al., arXiv:1909.13021, arXiv:2005.07959).

edges.csv, features.json with the numbers of the features that each vertex has, target.csv with its class; a name may
precede each file's, as in musae_git_edges.csv.
"""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import numpy as np

from data_prep.assembly.vertex_rows import rows_held
from data_prep.edges.raw_graph import RawGraph, ReadOptions, SparseRows, far_too_many
from data_prep.formats.columns import TableColumns, class_numbers, first_of
from data_prep.formats.edge_text import edge_stream
from data_prep.formats.numeric_text import open_text
from data_prep.formats.tables import open_table
from data_prep.workspace import require_whole
from leapmpi.errors import ConfigError, DataError

SUMMARY = "folder of MUSAE: edges.csv, features.json, target.csv"
OPTIONS = frozenset({"label_column"})

_TIMES = 10
"""Bytes held per byte of the files; measured on facebook."""

# Twitch numbers its vertices in new_id; its id is the site's.
_IDS = ("new_id", "id")
_LABELS = ("page_type", "ml_target", "mature", "target")


def can_read(path: Path) -> bool:
    return path.is_dir() and _named(path, "features.json") is not None and _named(path, "edges.csv") is not None


def read(path: Path, options: ReadOptions) -> RawGraph:
    """The graph in the folder `path`, with binary features and the classes in `options.label_column` of target.csv."""
    edge_file, feature_file = _named(path, "edges.csv"), _named(path, "features.json")
    if edge_file is None or feature_file is None:
        raise DataError(f"{path} must hold one edges.csv and one features.json (and target.csv)")
    target = _named(path, "target.csv")
    size = sum(file.stat().st_size for file in (edge_file, feature_file, target) if file)
    require_whole(str(path), size, _TIMES, options.workspace)

    # Edges, features, and ids of labelled vertices; vertices are numbered from 0 on in all three.
    stream, notes = edge_stream(edge_file)
    notes = [note for note in notes if "header" not in note]
    edges = np.concatenate(list(stream.chunks()), axis=1)
    vertex, feature = _features(feature_file)
    table = _rows(target) if target else None
    ids = _vertex_ids(table) if table else np.empty(0, np.int64)
    vertices = 1 + int(max(edges.max(), vertex.max(initial=-1), ids.max(initial=-1)))

    # A stray number must not make a huge graph.
    if far_too_many(vertices, edges.shape[1]):
        raise DataError(f"{path}: vertex {vertices - 1:,} occurs, but there are only {edges.shape[1]:,} edges")
    width = int(feature.max(initial=-1)) + 1
    if far_too_many(width, len(feature)):
        raise DataError(f"{feature_file}: feature {width - 1:,} occurs, but there are only {len(feature):,} entries")
    labels, class_names = _labels(table, ids, vertices, options.label_column, path)

    # A feature that is listed twice counts once.
    vertex, feature = np.unique(np.stack([vertex, feature]), axis=1)
    ones = np.ones(len(vertex), np.float32)
    return RawGraph(
        vertices=vertices,
        edges=edges,
        features=SparseRows.from_triplets(vertex, feature, ones, (vertices, width)) if width else None,
        labels=labels,
        edges_name=str(edge_file),
        notes=notes,
        class_names=class_names,
        files={edge_file.name: "edges", feature_file.name: "features"} | ({target.name: "labels"} if target else {}),
    )


def _named(folder: Path, name: str) -> Path | None:
    """The file `name` in `folder`, or the only one whose name ends with it."""
    if (folder / name).is_file():
        return folder / name
    found = [entry for entry in folder.glob(f"*_{name}") if entry.is_file()]
    return found[0] if len(found) == 1 else None


def _features(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """int64[k]: vertex and feature of every entry. Raises DataError naming the place of the first fault."""
    try:
        with open_text(path) as file:
            lists = json.load(file)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}, character {error.pos}: not JSON ({error.msg})") from error
    except (RecursionError, ValueError) as error:
        raise DataError(f"{path} cannot be read as JSON ({error})") from error
    if not isinstance(lists, dict):
        raise DataError(f"{path} must hold an object with a list of features for each vertex")

    # Vertex numbers with lists of feature numbers.
    for key, features in lists.items():
        good = isinstance(features, list) and all(type(number) is int and 0 <= number < 2**40 for number in features)
        if not (good and key.isascii() and key.isdigit() and len(key) <= 12):
            raise DataError(
                f"{path}: vertex {key[:40]!r} has {str(features)[:40]!r}; expected a vertex number with a list of "
                "feature numbers from 0 on"
            )

    # All lists as two arrays.
    counts = np.fromiter(map(len, lists.values()), np.int64, len(lists))
    vertex = np.repeat(np.fromiter(map(int, lists), np.int64, len(lists)), counts)
    return vertex, np.fromiter(chain.from_iterable(lists.values()), np.int64, len(vertex))


def _rows(target: Path) -> TableColumns:
    table = open_table(target)
    return rows_held(table, table.names[0], table.names[1:])


def _vertex_ids(table: TableColumns) -> np.ndarray:
    column = first_of(table.columns, _IDS)
    if column is None:
        raise DataError(f"{table.path} has no column id; it has {', '.join(table.columns)}")
    texts = table.columns[column]
    bad = next(
        (row for row, text in enumerate(texts) if not (text.isascii() and text.isdigit() and len(text) <= 12)), -1
    )
    if bad >= 0:
        raise DataError(f"{table.place(bad)}: {texts[bad][:40]!r} is not a vertex number")
    ids = np.array([int(text) for text in texts], np.int64)
    _, first = np.unique(ids, return_index=True)
    if len(first) < len(ids):
        row = int(np.setdiff1d(np.arange(len(ids)), first)[0])
        raise DataError(f"{table.place(row)}: vertex {ids[row]} is listed twice")
    return ids


def _labels(
    table: TableColumns | None, ids: np.ndarray, vertices: int, label_column: str | None, path: Path
) -> tuple[np.ndarray | None, list[str] | None]:
    """Labels int64[vertices] and the names of the classes."""
    if table is None:
        if label_column:
            raise ConfigError(f"--label-column {label_column}: {path} has no target.csv")
        return None, None
    others = [name for name in table.columns if name.lower() not in _IDS]
    name = label_column or first_of(table.columns, _LABELS) or (others[0] if len(others) == 1 else None)
    if name not in table.columns:
        fault = "which column holds the classes is not known"
        if label_column:
            fault = f"--label-column {label_column}: no such column"
        raise ConfigError(f"{fault} in {table.path}; choose by --label-column from {', '.join(table.columns)}")
    values, class_names = class_numbers(table, name)
    labels = np.full(vertices, -1, np.int64)
    labels[ids] = values
    return labels, class_names
