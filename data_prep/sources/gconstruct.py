"""GraphStorm's description of a graph for gconstruct: a JSON file that names tables of nodes and edges; of one type.

https://graphstorm.readthedocs.io, "Input Raw Data", "Configuration JSON Object Explanations". Tables in CSV and Parquet
are read; features as they stand in them, without transformations.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.assembly.id_map import Numbering
from data_prep.edges.edge_stream import EdgeStream
from data_prep.edges.raw_graph import RawGraph, ReadOptions
from data_prep.formats.columns import EdgeColumns, Table, TableColumns
from data_prep.formats.description import begins_with, entry, read_json
from data_prep.formats.numeric_text import open_text
from data_prep.formats.tables import open_table
from data_prep.sources.table import edge_chunks, vertices_of
from leapmpi.errors import DataError

SUMMARY = "JSON file of GraphStorm's gconstruct, which names tables of nodes and edges"
OPTIONS = frozenset({"label_column", "edge_labels"})

_FORMATS = ("csv", "parquet")
_PLAIN = ("noop",)
_SPLITS = {"train": "train", "val": "valid", "test": "test"}
_ENDS = {"source": "source_id_col", "destination": "dest_id_col"}


def can_read(path: Path) -> bool:
    return begins_with(path, "node_id_col", "source_id_col")


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph that the JSON file `path` describes."""
    about = read_json(path)
    nodes, edges = _one(about, "nodes", path), _one(about, "edges", path)

    # The table of vertices.
    where = f"{path}: nodes"
    label = options.label_column or next((each["label_col"] for each in _labels(nodes, where)), None)
    columns = _features(nodes, where)
    chosen = {"id": entry(nodes, "node_id_col", str, where)} | {f"feature {name}": name for name in columns}
    chosen |= {"label": label} if label else {}
    files = _files(nodes, path, where)
    plain = ReadOptions(task=options.task or _task(nodes, where), workspace=options.workspace)
    graph, numbering = vertices_of(_ChosenColumns(files, chosen), plain)
    graph.splits = _splits(nodes, numbering, path, where)
    graph.split_origin = path.name

    # That of edges.
    where = f"{path}: edges"
    names = {end: entry(edges, key, str, where) for end, key in _ENDS.items()}
    carried, of_edges = _carried(edges, options, where)
    edge_files = _files(edges, path, where)
    table = _ChosenColumns(edge_files, {**names, **{name: name for name in of_edges}})
    graph.edges = EdgeStream(lambda: edge_chunks(table, list(names), carried, numbering.numbers), carries=carried.dtype)
    graph.edges_name = ", ".join(map(str, edge_files[:2])) + ", ..." * (len(edge_files) > 2)
    shares = next((each["split_pct"] for each in _labels(nodes, f"{path}: nodes") if "split_pct" in each), None)
    if graph.splits is None and isinstance(shares, list):
        rule = ",".join(map(str, shares))
        graph.notes.append(f"{path.name} requests a random split; --splits random:{rule} makes one")
    return graph


def _one(about: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    """Return the only entry of the list `key`. Raises DataError where there are several types."""
    found = entry(about, key, list, str(path))
    if len(found) != 1 or not isinstance(found[0], dict):
        raise DataError(f"{path} describes {len(found)} types of {key}; graphs of one type are read")
    return found[0]


def _files(about: dict[str, Any], path: Path, where: str) -> list[Path]:
    """Find the files of a table: paths from the folder of the JSON file, or from here; * stands for any text."""
    kind = about.get("format")
    name = kind.get("name") if isinstance(kind, dict) else kind
    if name not in _FORMATS:
        raise DataError(f"{where}: files in {name!r} are not read; save them as {' or '.join(_FORMATS)}")
    listed = about.get("files")
    found: list[Path] = []
    for pattern in [listed] if isinstance(listed, str) else listed or []:
        places = [str(path.parent / str(pattern)), str(pattern)]
        matches = next((hits for place in places if (hits := sorted(glob.glob(place)))), [])
        if not matches:
            raise DataError(f"{where}: there is no file {pattern}, neither from {path.parent} nor from here")
        found += map(Path, matches)
    if not found:
        raise DataError(f"{where}: no files are named")
    return found


def _features(about: dict[str, Any], where: str) -> list[str]:
    """Return the columns that are features. Raises DataError for one that is to be transformed."""
    columns: list[str] = []
    for each in about.get("features") or []:
        transform = each.get("transform") or {}
        names = each.get("feature_col")
        if transform.get("name", _PLAIN[0]) not in _PLAIN:
            raise DataError(
                f"{where}: feature {names} is transformed by {transform['name']!r}, which leapmpi-prep cannot do; "
                "save the transformed column, and leave 'transform' out"
            )
        columns += [names] if isinstance(names, str) else names or []
    return columns


def _labels(about: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the entries of the file about labels: those with a column."""
    return [
        each for each in about.get("labels") or [] if isinstance(each, dict) and isinstance(each.get("label_col"), str)
    ]


def _task(about: dict[str, Any], where: str) -> str | None:
    tasks = [each.get("task_type") for each in _labels(about, where)]
    return "regression" if "regression" in tasks else None


def _carried(about: dict[str, Any], options: ReadOptions, where: str) -> tuple[EdgeColumns, list[str]]:
    """Return the roles and columns of edge data: the one called weight is the weight."""
    columns = _features(about, where)
    label = options.edge_labels or next((each["label_col"] for each in _labels(about, where)), None)
    weight = next((name for name in columns if name.lower() == "weight"), None)
    found = EdgeColumns(weight, None, tuple(name for name in columns if name != weight), label)
    return found, [str(name) for name in found.all]


def _splits(about: dict[str, Any], numbering: Numbering, path: Path, where: str) -> dict[str, np.ndarray] | None:
    """Read the splits in files that are named, by the ids of vertices."""
    given = next(
        (each["custom_split_filenames"] for each in _labels(about, where) if "custom_split_filenames" in each), None
    )
    if not isinstance(given, dict):
        return None
    column = given.get("column")
    column = column[0] if isinstance(column, list) and column else column
    found: dict[str, np.ndarray] = {}
    for split, key in _SPLITS.items():
        listed = given.get(key) or []
        for name in [listed] if isinstance(listed, str) else listed:
            file = path.parent / name if (path.parent / name).exists() else Path(name)
            ids, place = _ids(file, column)
            numbers = numbering.numbers(ids, place)
            found[split] = np.concatenate([found.get(split, numbers[:0]), numbers])
    return found or None


def _ids(file: Path, column: object) -> tuple[Any, Any]:
    """Read the ids in a file of a split, and name a row for messages: lines of JSON, or a column of a table."""
    if file.suffix == ".parquet" or file.name.endswith((".csv", ".tsv")):
        if not isinstance(column, str):
            raise DataError(f"{file}: 'column' does not say which column holds the ids")
        batches = list(_ChosenColumns([file], {"id": column}).batches(["id"]))
        parts = [batch.columns["id"] for batch in batches]
        if parts and isinstance(parts[0], np.ndarray):
            return np.concatenate(parts), lambda row: f"{file}, row {row} (counted from 0)"
        return [text for part in parts for text in part], lambda row: f"{file}, row {row} (counted from 0)"
    if not file.exists():
        raise DataError(f"{file} does not exist")
    with open_text(file) as lines:
        texts = [line.strip() for line in lines if line.strip()]
    try:
        return [str(json.loads(text)) for text in texts], lambda row: f"{file}, line {row + 1}"
    except ValueError:
        return texts, lambda row: f"{file}, line {row + 1}"


class _ChosenColumns:
    """Rows of all `files`, one after the other; `chosen` maps new names to those of the files.

    A Table. Raises DataError for a file that is damaged or lacks a column.
    """

    unread: tuple[str, ...] = ()

    def __init__(self, files: Sequence[Path], chosen: Mapping[str, str]) -> None:
        self._tables: list[Table] = [open_table(file) for file in files]
        self._chosen = dict(chosen)
        for table in self._tables:
            if missing := [name for name in self._chosen.values() if name not in table.names]:
                raise DataError(
                    f"{table.path} has no column {missing[0]!r} of texts or numbers; it has {', '.join(table.names)}"
                )
        self.path = files[0]
        self.names = list(self._chosen)
        whole = frozenset.intersection(*(table.integers for table in self._tables))
        self.integers = frozenset(name for name, old in self._chosen.items() if old in whole)

    def batches(self, only: Sequence[str]) -> Iterator[TableColumns]:
        """Yield the columns `only` of at most ROWS_AT_ONCE rows at a time."""
        before = 0
        for table in self._tables:
            rows = 0
            for batch in table.batches(list(dict.fromkeys(self._chosen[name] for name in only))):
                columns = {name: batch.columns[old] for name in only if (old := self._chosen[name]) in batch.columns}
                yield replace(batch, columns=columns, first_row=before + batch.first_row, rows_before=before)
                rows += batch.rows
            before += rows
