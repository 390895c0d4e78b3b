"""Chunked graphs of DGL's distributed preprocessing, as GraphStorm's processing on Spark writes them: metadata.json.

It lists types of nodes and edges with their numbers, and the files of edges and data of each type: tables of two
columns of ids (CSV or Parquet), and features in .npy or Parquet (docs of DGL, "Distributed Training", "Data
Preprocessing"). Ids are numbers within their type.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.edges.edge_records import EdgeArrays
from data_prep.edges.edge_stream import EdgeStream
from data_prep.edges.raw_graph import ReadOptions, Source
from data_prep.edges.typed_graph import RawRelation, RawVertices, TypedRawGraph
from data_prep.formats.array_files import joined_rows, read_array
from data_prep.formats.description import begins_with, entry, read_json
from data_prep.formats.edge_text import edge_stream
from data_prep.formats.known_names import EDGE_ARRAYS, FEATURES, LABELS, first_known
from data_prep.formats.tables import open_table
from data_prep.formats.typed_folders import mark_reverse_names, relation_of
from leapmpi.errors import DataError, counted

SUMMARY = "metadata.json of DistDGL's chunked graphs, as GraphStorm's GSProcessing writes them"
OPTIONS = frozenset[str]()

_SPLITS = {"train": "train_mask", "val": "val_mask", "test": "test_mask"}
_TIMES = ("time", "timestamp", "year")


def can_read(path: Path) -> bool:
    """Recognise metadata.json, or its folder, by DGL's counts of nodes."""
    return begins_with(_file(path), "num_nodes_per_type", "num_nodes_per_chunk")


def read(path: Path, options: ReadOptions) -> TypedRawGraph:
    """Read the chunked graph that `path`, metadata.json or its folder, describes."""
    path = _file(path)
    about, where = read_json(path), str(path)
    names = entry(about, "node_type", list, where)
    counts = _numbers(about, "num_nodes", names, where)
    graph = TypedRawGraph({name: RawVertices(count) for name, count in (counts or {}).items()}, [])
    if not graph.vertices:
        raise DataError(f"{where} does not state num_nodes_per_type")

    # The edges, and their numbers.
    relations = entry(about, "edge_type", list, where)
    numbers = _numbers(about, "num_edges", relations, where) or {}
    listed = entry(about, "edges", dict, where)
    for name in map(str, relations):
        named = relation_of(name, ":", graph.vertices)
        if named is None:
            raise DataError(f"{where}: edge_type {name!r} is not SOURCE:RELATION:DESTINATION")
        files = _data(path, listed.get(name), f"{where}: edges of {name}")
        # Bound now: streams are read after the loop.
        edges = EdgeStream(lambda files=files, name=name: _edges(files, name, numbers.get(name)), numbers.get(name))
        carried, left = _carried(path, about, name, options)
        graph.relations.append(RawRelation(*named, edges, f"{files[0]}", carried))
        graph.notes += [f"not used of {name}: {', '.join(left)}"] if left else []
        graph.files |= {_shown(file, path): "edges" for file in files}
    mark_reverse_names(graph.relations)

    # What vertices carry.
    for name, each in graph.vertices.items():
        _fill(each, name, path, about, options, graph)
    return graph


def _file(path: Path) -> Path:
    return path / "metadata.json" if path.is_dir() else path


def _shown(file: Path, path: Path) -> str:
    return str(file.relative_to(path.parent)) if file.is_relative_to(path.parent) else str(file)


def _numbers(about: dict[str, Any], key: str, names: list, where: str) -> dict[str, int] | None:
    """Return the numbers by name: those per type, or those of all chunks added up; None where there are none."""
    found = about.get(f"{key}_per_type", about.get(f"{key}_per_chunk"))
    if found is None:
        return None
    listed = [each if isinstance(each, list) else [each] for each in found] if isinstance(found, list) else []
    if len(listed) != len(names) or not all(type(number) is int and number >= 0 for each in listed for number in each):
        raise DataError(f"{where}: {key}_per_type does not hold a number for each of {', '.join(map(str, names))[:80]}")
    return {str(name): sum(each) for name, each in zip(names, listed, strict=True)}


def _data(path: Path, about: object, where: str) -> list[Path]:
    """List the files of an entry with `format` and `data`. Raises DataError where one is missing."""
    entry(about, "format", dict, where)
    files = [path.parent / str(file) for file in entry(about, "data", list, where)]
    if not files:
        raise DataError(f"{where}: no files are named")
    for file in files:
        if not file.is_file():
            raise DataError(f"{where}: {file} does not exist")
    return files


def _edges(files: list[Path], name: str, stated: int | None) -> Iterator[np.ndarray]:
    """Yield the edges in `files`. Raises DataError where there are not as many as `stated`."""
    found = 0
    for file in files:
        for chunk in _pairs(file):
            found += chunk.shape[1]
            yield chunk
    if stated not in (None, found):
        raise DataError(
            f"{files[0]}: the files of {name} hold {counted(found, 'edge')}, but metadata.json says {stated:,}"
        )


def _pairs(file: Path) -> Iterator[np.ndarray]:
    """Yield the edges in a file of text or Parquet."""
    if file.suffix == ".npy":
        found = read_array(file)
        if found.ndim != 2 or 2 not in found.shape:
            raise DataError(f"{file} must hold pairs of ids, but its shape is {list(found.shape)}")
        yield found if found.shape[0] == 2 and found.shape[1] != 2 else found.T
        return
    if file.suffix != ".parquet":
        yield from (chunk for chunk in edge_stream(file)[0].chunks() if isinstance(chunk, np.ndarray))
        return
    table = open_table(file)
    if len(table.names) < 2:
        raise DataError(f"{file} has the columns {', '.join(table.names)}; expected two of ids")
    for batch in table.batches(table.names[:2]):
        yield np.stack([np.asarray(batch.columns[name]) for name in table.names[:2]])


def _array(path: Path, about: object, where: str, options: ReadOptions) -> np.ndarray:
    """Read the rows of all files of an entry, one file after the other."""
    files = _data(path, about, where)
    parts = [_rows(file) for file in files]
    return joined_rows(parts, [str(file) for file in files], options.workspace)


def _rows(file: Path) -> np.ndarray:
    """Read the rows of an .npy file, or of the first column of numbers in a Parquet file."""
    if file.suffix != ".parquet":
        return read_array(file)
    table = open_table(file)
    found = []
    for batch in table.batches(table.names[:1]):
        column = batch.columns.get(table.names[0])
        if not isinstance(column, np.ndarray):
            raise DataError(f"{batch.place(0)}: column {table.names[0]!r} holds no numbers, or lists of another length")
        found.append(column)
    return np.concatenate(found) if found else np.empty(0, np.float32)


def _entries(about: dict[str, Any], key: str, name: str, where: str) -> dict[str, Any]:
    found = about.get(key) or {}
    inner = found.get(name) if isinstance(found, dict) else None
    if inner is not None and not isinstance(inner, dict):
        raise DataError(f"{where}: {key} of {name} is not an object; is the file whole?")
    return inner or {}


def _carried(path: Path, about: dict[str, Any], name: str, options: ReadOptions) -> tuple[EdgeArrays, list[str]]:
    """Read the data of the edges of a relation, and list what is not used."""
    held = _entries(about, "edge_data", name, str(path))
    chosen = {field: found for field, known in EDGE_ARRAYS.items() if (found := first_known(held, known))}
    where = f"{path}: edge_data of {name}"
    arrays = {field: _array(path, held[each], f"{where}, {each}", options) for field, each in chosen.items()}
    return EdgeArrays(where, **arrays), sorted(set(held) - set(chosen.values()))


def _fill(
    each: RawVertices, name: str, path: Path, about: dict[str, Any], options: ReadOptions, graph: TypedRawGraph
) -> None:
    """Read features, labels, masks and times of the type `name`; note what is not used."""
    held = _entries(about, "node_data", name, str(path))
    known = {"features": FEATURES, "labels": LABELS, "times": _TIMES}
    chosen = {field: first_known(held, names) for field, names in known.items()}

    def read_entry(key: str) -> np.ndarray:
        found = _array(path, held[key], f"{path}: node_data of {name}, {key}", options)
        if len(found) != each.count:
            raise DataError(
                f"{path}: {key} of {name} has {counted(len(found), 'row')}, but there are "
                f"{counted(each.count, 'vertex')}"
            )
        return found

    for field, key in chosen.items():
        if key is not None:
            found = read_entry(key)
            if field == "features" and found.ndim == 1:
                found = found[:, None]
            setattr(each, field, found.reshape(-1) if field == "times" else found)
    # A validation or test mask without a vertex is not a split; training needs its own even so.
    masks = {split: read_entry(key).reshape(-1).astype(bool) for split, key in _SPLITS.items() if key in held}
    each.splits = {split: mask for split, mask in masks.items() if split == "train" or mask.any()} or None
    graph.split_origin = "masks of node_data" if masks else graph.split_origin
    if left := sorted(set(held) - set(chosen.values()) - set(_SPLITS.values())):
        graph.notes.append(f"not used of {name}: {', '.join(left)}")


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
