"""A typed graph in a folder of .npy files: nodes/TYPE/... and edges/SOURCE__RELATION__DESTINATION/edge_index.npy.

nodes/TYPE holds feat.npy (or features, x, node_feat), label.npy (labels, y) and time.npy, each optional; train.npy,
val.npy and test.npy are in nodes/TYPE or, for the type with labels, in split/. Counts of types without arrays are in
meta.json as {"nodes": {TYPE: {"count": N}}}, else the largest ids show them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.edges.edge_records import EdgeArrays
from data_prep.edges.raw_graph import SPLIT_NAMES, ReadOptions, Source
from data_prep.edges.typed_graph import RawVertices, TypedRawGraph
from data_prep.formats.array_files import read_array, read_ids
from data_prep.formats.description import entry, read_json
from data_prep.formats.typed_folders import counted, read_relation
from leapmpi.errors import DataError

SUMMARY = "folder of .npy files by type and relation: nodes/TYPE/feat.npy, edges/A__RELATION__B/edge_index.npy"
OPTIONS = frozenset[str]()

_NODES, _EDGES, _SPLIT, _ABOUT, _INDEX = "nodes", "edges", "split", "meta.json", "edge_index.npy"
_SEPARATOR = "__"
_FEATURES, _LABELS = ("feat", "features", "x", "node_feat"), ("label", "labels", "y", "node_label")
_TIMES = ("time", "node_time", "year")
_WEIGHTS, _EDGE_FEATURES = ("weight", "edge_weight"), ("feat", "features", "edge_attr", "edge_feat")
_SPLIT_FILES = {"train": ("train", "train_idx"), "val": ("val", "valid", "val_idx"), "test": ("test", "test_idx")}


def can_read(path: Path) -> bool:
    """Recognise a folder with nodes/ and at least one folder of a relation."""
    return path.is_dir() and (path / _NODES).is_dir() and bool(_relation_folders(path))


def read(path: Path, options: ReadOptions) -> TypedRawGraph:
    """Read the typed graph in the folder `path`. Raises DataError naming the file of the first fault."""
    if not can_read(path):
        raise DataError(f"{path} must hold {_NODES}/TYPE and {_EDGES}/SOURCE__RELATION__DESTINATION/edge_index.npy")
    _check_complete(path)
    folders = {each.name: each for each in sorted((path / _NODES).iterdir()) if each.is_dir()}
    graph = TypedRawGraph({}, [])
    about = read_json(path / _ABOUT) if (path / _ABOUT).is_file() else {}
    described = entry(about, _NODES, dict, str(path / _ABOUT)) if _NODES in about else {}
    stated = {
        name: entry(each, "count", int, f"{path / _ABOUT}: {name}")
        for name, each in described.items()
        if isinstance(each, dict) and "count" in each
    }
    if about:
        graph.files[str(path / _ABOUT)] = "types"

    # The edges.
    for folder in _relation_folders(path):
        arrays = EdgeArrays(
            str(folder), weight=_first(folder, _WEIGHTS, graph), features=_first(folder, _EDGE_FEATURES, graph),
            time=_first(folder, ("time", "edge_time"), graph),
        )  # fmt: skip
        types = {**stated, **folders}
        graph.relations.append(read_relation(folder, _SEPARATOR, types, rows=False, arrays=arrays))
        graph.files[graph.relations[-1].where] = "edges"

    # What vertices carry, and their numbers.
    order = {**stated, **folders}
    arrays_of = {name: _vertices(folders.get(name), graph) for name in order}
    rows = {
        name: {
            str(file): len(array)
            for array, known in ((each.features, _FEATURES), (each.labels, _LABELS), (each.times, _TIMES))
            if array is not None and (file := _file(folders[name], known))
        }
        for name, each in arrays_of.items()
        if name in folders
    }
    # A type has as many vertices as the description, its rows or its edges say, and all must agree.
    for name, count in counted(stated, rows, graph.relations, str(path / _ABOUT)).items():
        graph.vertices[name] = arrays_of.get(name, RawVertices(count))
        graph.vertices[name].count = count
    graph.target = about["target"] if isinstance(about.get("target"), str) else None
    _read_splits(path, graph)
    graph.files = {
        str(Path(name).relative_to(path)) if Path(name).is_relative_to(path) else name: what
        for name, what in graph.files.items()
    }
    return graph


def _relation_folders(path: Path) -> list[Path]:
    folder = path / _EDGES
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [each for each in found if (each / _INDEX).is_file()]


def _check_complete(path: Path) -> None:
    """Raise DataError for a folder of a relation without edges."""
    for folder in sorted((path / _EDGES).iterdir()):
        if folder.is_dir() and _SEPARATOR in folder.name and not (folder / _INDEX).is_file():
            raise DataError(f"{folder / _INDEX} is missing; add it, or remove the folder of this relation")


def _file(folder: Path, known: tuple[str, ...]) -> Path | None:
    """Return the first file of the `known` arrays in `folder`; None where there is none."""
    return next((folder / f"{name}.npy" for name in known if (folder / f"{name}.npy").is_file()), None)


def _first(folder: Path | None, known: tuple[str, ...], graph: TypedRawGraph) -> np.ndarray | None:
    """Read the first of the `known` arrays in `folder`; None where there is none."""
    file = _file(folder, known) if folder else None
    if file is None:
        return None
    graph.files[str(file)] = file.stem
    return read_array(file)


def _vertices(folder: Path | None, graph: TypedRawGraph) -> RawVertices:
    """Read the arrays of the type in `folder`, whose number of vertices is still to be set."""
    splits = {}
    for name in SPLIT_NAMES:
        file = _file(folder, _SPLIT_FILES[name]) if folder else None
        if file is not None:
            splits[name] = read_ids(file)
            graph.files[str(file)] = "splits"
    return RawVertices(
        -1,
        features=_first(folder, _FEATURES, graph),
        labels=_first(folder, _LABELS, graph),
        times=_first(folder, _TIMES, graph),
        splits=splits or None,
    )


def _read_splits(path: Path, graph: TypedRawGraph) -> None:
    """Read the folder of splits, which are those of the target, or of the only type with labels."""
    folder = path / _SPLIT
    found = {name: file for name in SPLIT_NAMES if folder.is_dir() and (file := _file(folder, _SPLIT_FILES[name]))}
    known = graph.labelled_types()
    target = graph.target or (known[0] if len(known) == 1 else None)
    if not found:
        return
    if target is None or target not in graph.vertices:
        raise DataError(f"{folder} does not say of which type its ids are; put the files into {path / _NODES}/TYPE")
    graph.vertices[target].splits = {name: read_ids(file) for name, file in found.items()}
    graph.split_origin = _SPLIT
    for file in found.values():
        graph.files[str(file)] = "splits"


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
