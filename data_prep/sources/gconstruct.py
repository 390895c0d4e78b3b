"""GraphStorm's description of a graph for gconstruct: a JSON file that names tables of nodes and edges.

https://graphstorm.readthedocs.io, "Input Raw Data", "Configuration JSON Object Explanations". Tables in CSV and Parquet
are read, and features of nodes transformed by max_min_norm, standard, rank_gauss, bucket_numerical or to_categorical.
Those of edges stay as they stand in the tables.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.assembly.id_map import Numbering
from data_prep.assembly.transforms import NOOP
from data_prep.assembly.typed_tables import EdgeTable, FeatureColumns, VertexTable, read_tables
from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source
from data_prep.edges.typed_graph import TypedRawGraph
from data_prep.formats.chosen_columns import ChosenColumns, matching_files
from data_prep.formats.columns import EdgeColumns
from data_prep.formats.description import begins_with, entry, read_json
from data_prep.formats.numeric_text import open_text
from data_prep.formats.typed_folders import mark_reverse_names
from data_prep.sources.table import edge_stream, vertices_of
from leapmpi.errors import DataError

SUMMARY = "JSON file of GraphStorm's gconstruct, which names tables of nodes and edges"
OPTIONS = frozenset({"label_column", "edge_labels"})

_FORMATS = ("csv", "parquet")
_SPLITS = {"train": "train", "val": "valid", "test": "test"}
_ENDS = {"source": "source_id_col", "destination": "dest_id_col"}


def can_read(path: Path) -> bool:
    """Recognise the JSON file by a column of ids of nodes or of sources."""
    return begins_with(path, "node_id_col", "source_id_col")


def read(path: Path, options: ReadOptions) -> RawGraph | TypedRawGraph:
    """Read the graph that the JSON file `path` describes."""
    about = read_json(path)
    listed = {key: _entries(about, key, path) for key in ("nodes", "edges")}
    types = {str(each.get("node_type")) for each in listed["nodes"]}
    if len(types) > 1 or len(listed["edges"]) > 1:
        return _typed(listed, path, options)
    nodes, edges = listed["nodes"][0], listed["edges"][0]
    if len(listed["nodes"]) > 1 or any(
        _transform(each) != NOOP for each in _listed(nodes, "features", f"{path}: nodes")
    ):
        return _plain(_typed(listed, path, options))

    # The table of vertices.
    where = f"{path}: nodes"
    label = options.label_column or next((each["label_col"] for each in _labels(nodes, where)), None)
    columns = _features(nodes, where)
    chosen = {"id": entry(nodes, "node_id_col", str, where)} | {f"feature {name}": name for name in columns}
    chosen |= {"label": label} if label else {}
    files = _files(nodes, path, where)
    plain = ReadOptions(task=options.task or _task(nodes, where), workspace=options.workspace)
    graph, numbering = vertices_of(ChosenColumns(files, chosen), plain)
    graph.splits = _splits(nodes, numbering, path, where)
    graph.split_origin = path.name

    # That of edges.
    where = f"{path}: edges"
    names = {end: entry(edges, key, str, where) for end, key in _ENDS.items()}
    carried, of_edges = _carried(edges, options, where)
    edge_files = _files(edges, path, where)
    table = ChosenColumns(edge_files, {**names, **{name: name for name in of_edges}})
    graph.edges = edge_stream(table, list(names), carried, numbering.numbers)
    graph.edges_name = ", ".join(map(str, edge_files[:2])) + ", ..." * (len(edge_files) > 2)
    shares = next((each["split_pct"] for each in _labels(nodes, where) if "split_pct" in each), None)
    if graph.splits is None and isinstance(shares, list):
        rule = ",".join(map(str, shares))
        graph.notes.append(f"{path.name} requests a random split; --splits random:{rule} makes one")
    return graph


def _entries(about: dict[str, Any], key: str, path: Path) -> list[dict[str, Any]]:
    """Return the entries of the list `key`. Raises DataError where there are none."""
    found = entry(about, key, list, str(path))
    if not found or not all(isinstance(each, dict) for each in found):
        raise DataError(f"{path}: {key!r} is not a list of descriptions; is the file whole?")
    return found


def _listed(about: dict[str, Any], key: str, where: str) -> list[Any]:
    """Return the list `key`; an empty one where it is missing or null. Raises DataError for another kind."""
    found = about.get(key)
    if found is not None and not isinstance(found, list):
        raise DataError(f"{where}: {key!r} is not a list; is the file whole?")
    return found or []


def _transform(feature: object) -> object:
    """Return the name of the transformation of a feature."""
    found = feature.get("transform") if isinstance(feature, dict) else None
    return found.get("name", NOOP) if isinstance(found, dict) else NOOP


def _typed(listed: dict[str, list[dict[str, Any]]], path: Path, options: ReadOptions) -> TypedRawGraph:
    """Read the typed graph of all types of nodes and edges. The first type with labels is the target."""
    vertices: dict[str, list[VertexTable]] = {}
    labelled: dict[str, tuple[dict[str, Any], str]] = {}
    for each in listed["nodes"]:
        name = entry(each, "node_type", str, f"{path}: nodes")
        where = f"{path}: nodes of {name}"
        label = next((one["label_col"] for one in _labels(each, where)), None)
        # A type may stand in several entries; only the first names the column of ids.
        first = name not in vertices
        vertices.setdefault(name, []).append(
            VertexTable(
                where,
                _files(each, path, where),
                entry(each, "node_id_col", str, where) if first else None,
                tuple(_feature_columns(feature, where) for feature in _listed(each, "features", where)),
                label,
                task=_task(each, where),
            )
        )
        if label is not None:
            labelled[name] = each, where
    edges = []
    for each in listed["edges"]:
        relation = entry(each, "relation", list, f"{path}: edges")
        if len(relation) != 3 or not all(isinstance(one, str) and one for one in relation):
            raise DataError(f"{path}: edges: relation {str(relation)[:60]} is not [source, relation, destination]")
        where = f"{path}: edges of {':'.join(relation)}"
        ends = [entry(each, key, str, where) for key in _ENDS.values()]
        carried, _ = _carried(each, replace(options, edge_labels=None), where)
        files, carried = _files(each, path, where), replace(carried, label=None)
        table = EdgeTable(where, (relation[0], relation[1], relation[2]), files, ends[0], ends[1], carried)
        edges.append(table)
    # Splits name vertices by id, so they are read once all are numbered.
    graph, numbering = read_tables(vertices, edges, options)
    for name, (each, where) in labelled.items():
        graph.vertices[name].splits = _splits(each, numbering[name], path, where)
    mark_reverse_names(graph.relations)
    graph.target, graph.split_origin = next(iter(labelled), None), path.name
    return graph


def _feature_columns(feature: object, where: str) -> FeatureColumns:
    """Return the columns of a feature and its transformation."""
    names = feature.get("feature_col") if isinstance(feature, dict) else None
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not names or not all(isinstance(each, str) for each in names):
        raise DataError(f"{where}: a feature names no columns")
    transform = feature.get("transform") if isinstance(feature, dict) else None
    return FeatureColumns(tuple(names), transform if isinstance(transform, dict) else {"name": NOOP})


def _plain(graph: TypedRawGraph) -> RawGraph:
    """Return the graph of a single type as a plain one."""
    (vertices,), (relation,) = graph.vertices.values(), graph.relations
    return RawGraph(
        vertices.count,
        relation.edges,
        vertices.features,
        vertices.labels,
        vertices.splits,
        edges_name=relation.where,
        split_origin=graph.split_origin,
        names=vertices.names,
        class_names=vertices.class_names,
    )


def _files(about: dict[str, Any], path: Path, where: str) -> list[Path]:
    """Find the files of a table: paths from the folder of the JSON file, or from here; * stands for any text."""
    kind = about.get("format")
    name = kind.get("name") if isinstance(kind, dict) else kind
    if name not in _FORMATS:
        raise DataError(f"{where}: files in {name!r} are not read; save them as {' or '.join(_FORMATS)}")
    return matching_files(about.get("files"), path.parent, where)


def _features(about: dict[str, Any], where: str) -> list[str]:
    """Return the columns that are features. Raises DataError for one that is to be transformed."""
    columns: list[str] = []
    for each in _listed(about, "features", where):
        found = _feature_columns(each, where)
        if found.transform.get("name", NOOP) != NOOP:
            raise DataError(
                f"{where}: feature {', '.join(found.columns)} is transformed by {found.transform['name']!r}, which "
                "leapmpi-prep cannot do here; save the transformed column, and leave 'transform' out"
            )
        columns += found.columns
    return columns


def _labels(about: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the entries of the file about labels: those with a column."""
    return [
        each
        for each in _listed(about, "labels", where)
        if isinstance(each, dict) and isinstance(each.get("label_col"), str)
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
        named = given.get(key)
        for name in [named] if isinstance(named, str) else _listed(given, key, f"{where}: custom_split_filenames"):
            if not isinstance(name, str):
                raise DataError(f"{where}: custom_split_filenames: {key} names {str(name)[:40]!r}, not a file")
            # Relative names may mean the config's folder, or the one where gconstruct was started.
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
        batches = list(ChosenColumns([file], {"id": column}).batches(["id"]))
        parts = [batch.columns["id"] for batch in batches]
        if parts and isinstance(parts[0], np.ndarray):
            return np.concatenate(parts), lambda row: f"{file}, row {row} (counted from 0)"
        return [text for part in parts for text in part], lambda row: f"{file}, row {row} (counted from 0)"
    if not file.exists():
        raise DataError(f"{file} does not exist")
    with open_text(file) as lines:
        texts = [line.strip() for line in lines if line.strip()]
    try:
        # GraphStorm writes each line in JSON; others write plain ids.
        return [str(json.loads(text)) for text in texts], lambda row: f"{file}, line {row + 1}"
    except ValueError:
        return texts, lambda row: f"{file}, line {row + 1}"


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
