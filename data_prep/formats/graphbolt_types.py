"""Typed graphs of GraphBolt's OnDiskDataset: types and relations as its metadata.yaml names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from data_prep.edges.edge_records import EdgeArrays
from data_prep.edges.raw_graph import RawGraph, ReadOptions, checked_pairs
from data_prep.edges.typed_graph import GivenTriples, RawRelation, RawVertices, TypedRawGraph
from data_prep.formats.array_files import read_array
from data_prep.formats.description import entry
from data_prep.formats.edge_text import edge_stream
from data_prep.formats.known_names import EDGE_ARRAYS, FEATURES, LABELS, first_known
from data_prep.formats.torch_files import read_tensor
from data_prep.formats.typed_folders import mark_reverse_names, relation_of
from leapmpi.errors import ConfigError, DataError

_MOST = 1 << 40
_SETS = {"train": "train_set", "val": "validation_set", "test": "test_set"}


def is_typed(about: dict[str, Any]) -> bool:
    """Return whether the description `about` has several types of nodes or of edges."""
    graph = about.get("graph")
    listed = [graph.get(key) for key in ("nodes", "edges")] if isinstance(graph, dict) else []
    return any(isinstance(each, list) and len(each) > 1 for each in listed)


def read_typed(path: Path, about: dict[str, Any], where: str, options: ReadOptions) -> TypedRawGraph:
    """Read the typed graph in the folder `path`, of its description `about`, which `where` names in messages."""
    graph = TypedRawGraph({}, [], files={Path(where).name: "description"})
    for each in entry(about["graph"], "nodes", list, where):
        name, count = entry(each, "type", str, where), entry(each, "num", int, where)
        if not 0 <= count < _MOST or name in graph.vertices:
            raise DataError(f"{where}: type {name} has num {count}, or stands twice")
        graph.vertices[name] = RawVertices(count)

    # The edges, with what they carry.
    carried = _feature_files(path, about, "edge", where)
    for each in entry(about["graph"], "edges", list, where):
        name, file = entry(each, "type", str, where), path / entry(each, "path", str, where)
        named = relation_of(name, ":", graph.vertices)
        if named is None or not file.is_file():
            fault = f"{file} does not exist" if named else f"edge type {name!r} is not SOURCE:RELATION:DESTINATION"
            raise DataError(f"{where}: {fault}; types of a graph are read from the files of its edges")
        numpy = each.get("format") == "numpy"
        edges = checked_pairs(read_array(file), str(file), rows=False) if numpy else edge_stream(file)[0]
        held = carried.get(name, {})
        fields = {field: found for field, known in EDGE_ARRAYS.items() if (found := first_known(held, known))}
        arrays = {field: _array(held[found], options) for field, found in fields.items()}
        graph.relations.append(RawRelation(*named, edges, str(file), EdgeArrays(f"{where}: {name}", **arrays)))
        graph.files[_shown(file, path)] = "edges"
    mark_reverse_names(graph.relations)

    # What vertices carry.
    for name, held in _feature_files(path, about, "node", where).items():
        if name not in graph.vertices:
            raise DataError(f"{where}: feature_data names the type {name!r}, which has no nodes")
        of_type = graph.vertices[name]
        for field, known in (("features", FEATURES), ("labels", LABELS)):
            if found := first_known(held, known):
                array = _array(held[found], options)
                setattr(of_type, field, array[:, None] if field == "features" and array.ndim == 1 else array)
                graph.files[_shown(held[found], path)] = field
        if left := [each for each in held if each not in (*FEATURES, *LABELS)]:
            graph.notes.append(f"not used of {name}: {', '.join(left)}")
    _add_task(graph, path, about, where, options)
    return graph


def _shown(file: Path, path: Path) -> str:
    return str(file.relative_to(path)) if file.is_relative_to(path) else str(file)


def _array(file: Path, options: ReadOptions) -> np.ndarray:
    return read_tensor(file, options.workspace)


def _feature_files(path: Path, about: dict[str, Any], domain: str, where: str) -> dict[str, dict[str, Path]]:
    """List the files of features of nodes or edges, by type and name."""
    listed = entry(about, "feature_data", list, where) if about.get("feature_data") else []
    found: dict[str, dict[str, Path]] = {}
    for each in listed:
        if isinstance(each, dict) and each.get("domain") == domain:
            name = entry(each, "type", str, where)
            found.setdefault(name, {})[entry(each, "name", str, where)] = path / entry(each, "path", str, where)
    return found


def chosen_task(
    graph: RawGraph | TypedRawGraph, about: dict[str, Any], where: str, options: ReadOptions
) -> dict[str, Any] | None:
    """Return the task number `options.split_index` (0 unless given), and note in `graph` which it is; None without any.

    Raises ConfigError when there is no such task, DataError where `about` does not hold a list of them.
    """
    tasks, index = about.get("tasks") or [], options.split_index or 0
    if not isinstance(tasks, list) or not all(isinstance(each, dict) for each in tasks):
        raise DataError(f"{where}: 'tasks' is not a list of tasks; is the file whole?")
    if not tasks and options.split_index is None:
        return None
    if index >= len(tasks):
        raise ConfigError(f"--split-index {index}: {where} has {len(tasks)} tasks, counted from 0")
    if len(tasks) > 1 and options.split_index is None:
        graph.notes.append(f"task 0 of {len(tasks)} was taken; --split-index takes another")
    graph.split_origin = f"{Path(where).name}, task {tasks[index].get('name', index)}"
    return tasks[index]


def _add_task(graph: TypedRawGraph, path: Path, about: dict[str, Any], where: str, options: ReadOptions) -> None:
    """Add labels and splits of one task, or its validation and test edges."""
    if (task := chosen_task(graph, about, where, options)) is None:
        return
    # A set of a type of vertices is a split; one of a relation holds edges.
    triples: dict[str, list[np.ndarray]] = {}
    for split, key in _SETS.items():
        for each in task.get(key) or []:
            name, arrays = entry(each, "type", str, where), _members(path, each, where, options)
            if name in graph.vertices:
                _add_members(graph.vertices[name], split, arrays, f"{where}: the {split} set of {name}")
            else:
                triples.setdefault(split, []).append(_triples(graph, name, arrays, where))
    classes = task.get("num_classes")
    for of_type in graph.vertices.values():
        if of_type.splits and isinstance(classes, int) and 0 < classes < _MOST:
            of_type.classes = classes
    # Training edges are those of the graph, so only the others are held back.
    if triples.keys() & {"val", "test"}:
        none = np.empty((0, 3), np.int64)
        val, test = (np.concatenate([none, *triples.get(split, [])]) for split in ("val", "test"))
        graph.edge_splits = GivenTriples(val, test, f"source: {graph.split_origin}")


def _members(path: Path, about: dict[str, Any], where: str, options: ReadOptions) -> dict[str, np.ndarray]:
    """Read the arrays of a set by name."""
    listed = [each for each in entry(about, "data", list, where) if isinstance(each, dict)]
    files = {str(each.get("name")): path / entry(each, "path", str, where) for each in listed}
    return {name: _array(file, options) for name, file in files.items()}


def _add_members(vertices: RawVertices, split: str, arrays: dict[str, np.ndarray], where: str) -> None:
    """Add a split of a type, and the labels of its members."""
    seeds = next((arrays[name] for name in ("seeds", "seed_nodes") if name in arrays), None)
    if seeds is None or seeds.ndim != 1 or seeds.dtype.kind not in "iu":
        raise DataError(f"{where} has no list of seeds")
    vertices.splits = {**(vertices.splits or {}), split: seeds}
    labels = arrays.get("labels")
    if labels is None:
        return
    if len(labels) != len(seeds) or (len(seeds) and not 0 <= seeds.min() <= seeds.max() < vertices.count):
        raise DataError(f"{where} has other labels than seeds, or names a vertex outside 0 ... {vertices.count - 1:,}")
    if vertices.labels is None:
        unknown = np.nan if labels.dtype.kind == "f" else -1
        vertices.labels = np.full((vertices.count, *labels.shape[1:]), unknown, labels.dtype)
    vertices.labels[seeds] = labels


def _triples(graph: TypedRawGraph, name: str, arrays: dict[str, np.ndarray], where: str) -> np.ndarray:
    """Return the edges of a set of a relation, int64[k, 3]; those with the label 0 are negatives and left out."""
    number = next((r for r, each in enumerate(graph.relations) if str(each) == name), None)
    seeds = next((arrays[key] for key in ("seeds", "node_pairs") if key in arrays), None)
    if number is None or seeds is None:
        raise DataError(f"{where}: a set is of {name!r}, which is not a type with seeds")
    pairs = checked_pairs(seeds, f"{where}: seeds of {name}", rows=True)
    labels = arrays.get("labels")
    kept = pairs if labels is None or labels.shape != pairs.shape[1:] else pairs[:, labels != 0]
    return np.stack([kept[0], np.full(kept.shape[1], number), kept[1]], axis=1)
