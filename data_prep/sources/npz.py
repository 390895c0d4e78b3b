"""Generic .npz: a graph in arrays under the plain names that data_prep/README.md lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.edges.edge_stream import Edges
from data_prep.edges.raw_graph import (
    SPLIT_NAMES,
    RawGraph,
    ReadOptions,
    SparseRows,
    believable,
    edges_of_rows,
    whole_numbers,
)
from data_prep.formats.array_files import read_features, read_labels, read_sparse
from data_prep.formats.npz_reader import NpzFile, npz_names
from leapmpi.errors import DataError

SUMMARY = ".npz with indptr and indices, edge_index, edges, or a matrix saved by scipy"
OPTIONS = frozenset({"features", "labels", "vertices"})

_FEATURES = ("features", "x", "node_feat")
_LABELS = ("labels", "y", "node_label")
_EDGE_ARRAYS = ("indptr", "indices", "edge_index", "edges", "format", "data", "shape", "row", "col")
_SPLIT_SUFFIXES = ("", "_idx", "_ids", "_mask")


def can_read(path: Path) -> bool:
    """Whether `path` is an .npz that holds edges under a generic name."""
    if path.suffix != ".npz":
        return False
    names = npz_names(path)
    if "edges" in names:
        return "node_features" not in names  # else it is of the heterophilous collection
    return {"indptr", "indices"} <= names or {"format", "row", "col"} <= names or "edge_index" in names


def read(path: Path, options: ReadOptions) -> RawGraph:
    """The graph in the archive at `path`; `options` may add features and labels from other files.

    Raises DataError when there are no edges in it, or an array is damaged or has the wrong shape.
    """
    file = NpzFile(path, options.workspace)
    edges, name, rows = _edges(file, options)
    features = read_features(options.features, options.workspace) if options.features else _features(file)
    label_name = file.first(*_LABELS)
    labels = file.array(label_name) if label_name else None
    if options.labels:
        labels = read_labels(options.labels)
    splits = {name: members for name in SPLIT_NAMES if (members := _split(file, name)) is not None}

    # The number of vertices: stated, or by whatever has a row per vertex, or by the largest id.
    stated = file.first("vertices", "num_nodes")
    counted = (
        options.vertices,
        file.number(stated) if stated else None,
        rows,
        None if features is None else features.shape[0],
        None if labels is None else len(labels),
    )
    vertices = next((count for count in counted if count is not None), None)
    if vertices is None:

        def vertices(largest: int, count: int) -> int:
            return believable(largest + 1, count, name)

    return RawGraph(
        vertices=vertices,
        edges=edges,
        features=features,
        labels=labels,
        splits=splits or None,
        classes=file.number("classes") if "classes" in file.names else None,
        edges_name=name,
        split_origin=path.name,
        notes=_unused(file),
    )


def _edges(file: NpzFile, options: ReadOptions) -> tuple[Edges, str, int | None]:
    """Edges [2, E], what messages call them, and the number of rows of a compressed adjacency."""
    if "format" in file.names:
        return _edges_of_matrix(file, options)
    if {"indptr", "indices"} <= file.names:
        indptr = file.array("indptr")
        edges = edges_of_rows(indptr, file.array("indices"), str(file.path), rows_are="destination")
        return edges, file.label("indices"), len(indptr) - 1
    name = file.first("edge_index", "edges")
    if name is None:
        raise DataError(f"{file.path} holds no edges: it has neither indptr and indices, nor edge_index, nor edges")
    found = whole_numbers(file.array(name), file.label(name))
    expected = 0 if name == "edge_index" else 1
    if found.ndim != 2 or found.shape[expected] != 2:
        shape = "[2, edges]" if name == "edge_index" else "[edges, 2]"
        raise DataError(f"{file.label(name)} must have shape {shape}, but it is {found.shape}")
    return (found if expected == 0 else found.T), file.label(name), None


def _edges_of_matrix(file: NpzFile, options: ReadOptions) -> tuple[Edges, str, int]:
    """As `_edges`, of an adjacency matrix as scipy.sparse.save_npz writes it: entry (i, j) is the edge from i to j."""
    matrix = read_sparse(file.path, options.workspace)
    if matrix.shape[0] != matrix.shape[1]:
        raise DataError(f"{file.path} holds a matrix of shape {matrix.shape}; an adjacency matrix must be square")
    edges = edges_of_rows(matrix.indptr, matrix.indices, str(file.path), rows_are="source")
    return edges, str(file.path), matrix.shape[0]


def _features(file: NpzFile) -> np.ndarray | SparseRows | None:
    if name := file.first(*_FEATURES):
        return file.read(name)
    prefix = next((f"{name}_" for name in _FEATURES if f"{name}_indptr" in file.names), None)
    return file.sparse(prefix) if prefix else None


def _split(file: NpzFile, split: str) -> np.ndarray | None:
    name = file.first(*(split + suffix for suffix in _SPLIT_SUFFIXES))
    if name is None:
        return None
    members = file.array(name)
    return members.astype(bool) if name.endswith("_mask") else members


def _unused(file: NpzFile) -> list[str]:
    known = {*_EDGE_ARRAYS, "vertices", "num_nodes", "classes", *_FEATURES, *_LABELS}
    known |= {f"{name}_{part}" for name in _FEATURES for part in ("data", "indices", "indptr", "shape")}
    known |= {split + suffix for split in SPLIT_NAMES for suffix in _SPLIT_SUFFIXES}
    unused = sorted(file.names - known)
    return [f"{file.path.name}: not used: {', '.join(unused)}"] if unused else []
