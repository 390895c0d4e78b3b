"""Folders of MUSAE and FEATHER (Rozemberczki et al., arXiv:1909.13021, arXiv:2005.07959).

edges.csv, features.json with the numbers of the features that each vertex has, target.csv with its class; or lists of
groups in genres.json, as Deezer's. A name may precede each file's, as in musae_git_edges.csv.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.assembly.vertex_rows import rows_held
from data_prep.edges.edge_records import with_records
from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source, SparseRows, far_too_many
from data_prep.formats.columns import TableColumns, first_of, labels_in
from data_prep.formats.edge_text import edge_stream
from data_prep.formats.tables import open_table
from data_prep.formats.vertex_lists import duplicate_notes, groups_in, numbers_in, read_lists, settle
from data_prep.workspace import require_whole
from leapmpi.errors import ConfigError, DataError, counted

SUMMARY = "folder of MUSAE: edges.csv, features.json, target.csv, or genres.json"
OPTIONS = frozenset({"label_column", "labels", "feature_dim", "duplicate_rows"})

_TIMES = 10
"""Bytes held per byte of the files; measured on facebook."""

# Twitch numbers its vertices in new_id; its id is the site's.
_IDS = ("new_id", "id")
_LABELS = ("page_type", "ml_target", "mature", "target")


def can_read(path: Path) -> bool:
    """Recognise a folder with edges, and with features or groups in JSON."""
    listed = path.is_dir() and (_named(path, "features.json") or _named(path, "genres.json"))
    return bool(listed) and _named(path, "edges.csv") is not None


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in the folder `path`, or of its files that begin as the file `path`, NAME_edges.csv, does.

    Features are binary. Labels are the classes in `options.label_column` of target.csv, or the groups in the lists of
    the file `options.labels`. Without target.csv the default is genres.json.
    """
    # The files.
    edge_file, feature_file, target, groups = _files(path, options)
    files = {edge_file: "edges", feature_file: "features", target: "labels", groups: "labels"}
    files = {file: what for file, what in files.items() if file}
    require_whole(str(path), sum(file.stat().st_size for file in files), _TIMES, options.workspace)

    # Edges, features, and ids of labelled vertices; vertices are numbered from 0 on in all of them.
    stream, notes = edge_stream(edge_file)
    notes = [note for note in notes if "header" not in note]
    edges = np.concatenate([chunk for chunk, _ in with_records(stream.chunks())], axis=1)
    vertex = feature = grouped = group = np.empty(0, np.int64)
    group_names = None
    if feature_file:
        listed, lists, more = read_lists(feature_file, options.duplicate_rows)
        vertex, feature = numbers_in(feature_file, listed, lists)
        notes += more
    if groups:
        listed, lists, more = read_lists(groups, options.duplicate_rows)
        grouped, group, group_names = groups_in(groups, listed, lists)
        notes += more
    table = _rows(target) if target else None
    ids, kept = _vertex_ids(table, options.duplicate_rows, notes) if table else (np.empty(0, np.int64), slice(0))

    # A stray number must not make a huge graph.
    largest = (each.max(initial=-1) for each in (edges, vertex, grouped, ids))
    vertices = 1 + int(max(largest))
    if far_too_many(vertices, edges.shape[1]):
        raise DataError(
            f"{path}: vertex {vertices - 1:,} occurs, but the graph has only {counted(edges.shape[1], 'edge')}"
        )
    width = _width(feature, feature_file, options.feature_dim)

    # Labels: groups of a list, or classes of a table.
    labels, class_names = None, group_names
    if groups:
        labels = _memberships(grouped, group, (vertices, len(group_names or ())))
    elif table:
        labels, class_names = _labels(table, ids, kept, vertices, options, notes)

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
        files={file.name: what for file, what in files.items()},
    )


def _files(path: Path, options: ReadOptions) -> tuple[Path, Path | None, Path | None, Path | None]:
    """Find the files of edges, of features, the table of classes, and the lists of groups that are labels.

    Raises DataError where they are missing, ConfigError where a flag names none.
    """
    # Of a folder, or those whose names begin as the named file's does.
    folder, prefix = path, None
    if path.is_file():
        folder, prefix = path.parent, path.name.removesuffix("edges.csv")
    names = ("edges.csv", "features.json", "target.csv", "genres.json")
    edge_file, feature_file, target, groups = (_named(folder, name, prefix) for name in names)
    if edge_file is None or (feature_file is None and groups is None):
        raise DataError(f"{path} must hold one edges.csv and one features.json (and target.csv), or one genres.json")

    # Labels are in one file: the one that a flag names, else in target.csv.
    if options.labels:
        chosen = str(options.labels).removesuffix(".json")
        groups = _named(folder, f"{chosen}.json", prefix)
        if groups is None:
            held = ", ".join(sorted(file.name for file in folder.glob(f"{prefix or ''}*.json")))
            raise ConfigError(f"--labels {options.labels}: {folder} has no such lists; it has {held}")
        if options.label_column:
            raise ConfigError(f"--label-column {options.label_column}: --labels {options.labels} takes {groups.name}")
        return edge_file, feature_file, None, groups
    if options.label_column and target is None:
        raise ConfigError(f"--label-column {options.label_column}: {path} has no target.csv")
    return edge_file, feature_file, target, None if target else groups


def _named(folder: Path, name: str, prefix: str | None = None) -> Path | None:
    """Find the file `name` in `folder`, after `prefix` if given, or the only one whose name ends with it."""
    if prefix is not None:
        return file if (file := folder / f"{prefix}{name}").is_file() else None
    if (folder / name).is_file():
        return folder / name
    found = [entry for entry in folder.glob(f"*_{name}") if entry.is_file()]
    return found[0] if len(found) == 1 else None


def _rows(target: Path) -> TableColumns:
    table = open_table(target)
    return rows_held(table, table.names[0], table.names[1:])


def _vertex_ids(table: TableColumns, duplicates: str | None, notes: list[str]) -> tuple[np.ndarray, np.ndarray | slice]:
    """Return the vertices int64[k] of a table, each once, and the rows that count. Adds to `notes`.

    Raises DataError for an id that is not a number, or that is listed with two contents unless `duplicates` says which.
    """
    column = first_of(table.columns, _IDS)
    if column is None:
        raise DataError(f"{table.path} has no column id; it has {', '.join(table.columns)}")
    texts = table.columns[column]
    bad = next(
        (row for row, text in enumerate(texts) if not (text.isascii() and text.isdigit() and len(text) <= 12)), -1
    )
    if bad >= 0:
        raise DataError(f"{table.place(bad)}: {texts[bad][:40]!r} is not a vertex number")

    # Of the rows of one vertex, one counts.
    rows: dict[int, int] = {}
    same: list[str] = []
    for row, vertex in enumerate(map(int, texts)):
        if vertex in rows:
            equal = all(values[row] == values[rows[vertex]] for values in table.columns.values())
            if settle(f"{table.place(row)}: vertex {vertex}", equal, duplicates, same) == "first":
                continue
        rows[vertex] = row
    notes += duplicate_notes(table.path, same)
    return np.fromiter(rows, np.int64, len(rows)), np.fromiter(rows.values(), np.int64, len(rows))


def _width(feature: np.ndarray, file: Path | None, stated: int | None) -> int:
    """Return the number of columns: `stated`, or by the largest feature.

    Raises DataError for a feature out of range.
    """
    largest = int(feature.max(initial=-1))
    if stated is not None:
        if largest >= stated:
            raise DataError(f"{file}: feature {largest:,} occurs; --feature-dim must be at least {largest + 1:,}")
        return stated
    if far_too_many(largest + 1, len(feature)):
        raise DataError(f"{file}: feature {largest:,} occurs, but the file has only {counted(len(feature), 'entry')}")
    return largest + 1


def _memberships(vertex: np.ndarray, group: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Build multi-label classes float32[n, C]; vertices in no group are NaN, unlabelled."""
    labels = np.zeros(shape, np.float32)
    labels[vertex, group] = 1
    labels[labels.sum(axis=1) == 0] = np.nan
    return labels


def _labels(
    table: TableColumns,
    ids: np.ndarray,
    kept: np.ndarray | slice,
    vertices: int,
    options: ReadOptions,
    notes: list[str],
) -> tuple[np.ndarray, list[str] | None]:
    """Return labels [vertices] from the rows `kept` of the vertices `ids`, and the names of the classes.

    Classes are int64, -1 where there is no row; targets float64, NaN where there is none.
    """
    others = [name for name in table.columns if name.lower() not in _IDS]
    name = options.label_column or first_of(table.columns, _LABELS) or (others[0] if len(others) == 1 else None)
    if name not in table.columns:
        fault = "the column of the classes is unknown"
        if options.label_column:
            fault = f"--label-column {options.label_column}: no such column"
        raise ConfigError(f"{fault} in {table.path}; choose by --label-column from {', '.join(table.columns)}")
    values, class_names = labels_in(table, name, options.task)
    unlabelled = np.nan if values.dtype.kind == "f" else -1
    labels = np.full(vertices, unlabelled, values.dtype)
    labels[ids] = values[kept]
    unused = [other for other in others if other != name]
    notes += [f"{table.path.name}: not used: {', '.join(unused)} (--label-column takes one)"] if unused else []
    return labels, class_names


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
