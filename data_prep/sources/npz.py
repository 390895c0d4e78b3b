"""Generic .npz: a graph in arrays under the plain names in data_prep/IMPORT.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.edges.edge_records import EdgeArrays
from data_prep.edges.edge_stream import Edges
from data_prep.edges.raw_graph import (
    SPLIT_NAMES,
    GivenEdges,
    RawGraph,
    ReadOptions,
    Source,
    believable,
    checked_pairs,
    edges_of_rows,
    marked_edges,
    unused_values,
    whole_numbers,
)
from data_prep.formats.array_files import read_companions, read_sparse
from data_prep.formats.npz_reader import NamedArrays, NpzFile, npz_names
from leapmpi.dataset.hdf5.names import HELD_EDGES, HELD_LABELS
from leapmpi.errors import DataError

SUMMARY = ".npz with indptr and indices, edge_index, edges, src and dst, or a matrix saved by scipy"
OPTIONS = frozenset({"features", "labels", "vertices", "edge_labels", "vertex_times"})

_FEATURES = ("features", "x", "node_feat", "feat")
_LABELS = ("labels", "y", "node_label", "label")
_ENDS = (("src", "dst"), ("source", "target"), ("source", "destination"), ("row", "col"))
"""Names of a pair of arrays with the sources and the destinations of edges."""
_SCIPY = {"format", "shape", "data", "indptr", "indices", "row", "col"}
_EDGE_ARRAYS = {
    "weight": ("edge_weight", "edge_weights"),
    "features": ("edge_features", "edge_attr", "edge_feat"),
    "time": ("edge_time", "edge_times"),
    "labels": ("edge_labels", "edge_label"),
}
_TIMES = ("vertex_time", "vertex_times", "node_time")
_EDGE_SPLITS = {"val": ("val_edges", "valid_edges"), "test": ("test_edges",)}
_NEGATIVES = {"val": ("val_negatives", "val_edges_neg"), "test": ("test_negatives", "test_edges_neg")}
_EDGE_MASKS = {"val": ("val_edge_mask",), "test": ("test_edge_mask",)}
_SPLIT_SUFFIXES = ("", "_idx", "_ids", "_mask")


def can_read(path: Path) -> bool:
    """Recognise the archive by arrays of edges or of a scipy matrix in coordinates."""
    if path.suffix != ".npz":
        return False
    names = npz_names(path)
    if {"edges", "node_features"} <= names:
        return False  # it is of the heterophilous collection
    return holds_edges(names) or {"format", "row", "col"} <= names


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in the archive at `path`; `options` may add features and labels from other files."""
    return graph_of(NpzFile(path, options.workspace), options)


def holds_edges(names: frozenset[str]) -> bool:
    """Return whether arrays of these `names` have edges among them."""
    return {"indptr", "indices"} <= names or bool(names & {"edge_index", "edges"}) or _ends(names) is not None


def _ends(names: frozenset[str]) -> tuple[str, str] | None:
    """Return the first pair of `_ENDS` among `names`, or None."""
    return next((pair for pair in _ENDS if names.issuperset(pair)), None)


def graph_of(file: NamedArrays, options: ReadOptions) -> RawGraph:
    """Build the graph in the arrays of `file` under the generic names."""
    edges, name, rows, notes = _edges(file, options)
    options, named_features, named_labels = options.of_source(file.names, file.path)
    features, labels = read_companions(options)
    # Flags win over arrays of the file, and dense rows over sparse ones.
    if named_features:
        features = file.rows(named_features)
    elif features is None and (found := file.first(*_FEATURES)):
        features = file.rows(found)
    elif features is None and (found := file.first(*(f"{name}_indptr" for name in _FEATURES))):
        features = file.sparse(found.removesuffix("indptr"))
    if labels is None and (found := named_labels or file.first(*_LABELS)):
        labels = file.array(found)
    # A split is a mask of all vertices or a list of ids, by its name.
    splits = {}
    for split in SPLIT_NAMES:
        if found := file.first(*(split + suffix for suffix in _SPLIT_SUFFIXES)):
            members = file.array(found)
            splits[split] = members.astype(bool) if found.endswith("_mask") else members

    # What edges carry.
    carried = {field: found for field, known in _EDGE_ARRAYS.items() if (found := file.first(*known))}
    if options.edge_labels:
        carried["labels"] = options.edge_labels
    time = options.vertex_times or file.first(*_TIMES)
    if options.vertex_times and options.vertex_times not in file.names:
        raise DataError(f"--vertex-times {time}: neither a file nor an array of {file.path}")
    times = file.array(time) if time else None
    held_back = _edge_splits(file, edges, "labels" in carried)
    label = f"{file.path}: {', '.join(carried.values())}"
    edge_arrays = EdgeArrays(label, **{field: file.array(found) for field, found in carried.items()})

    # The number of vertices: stated, or by whatever has a row per vertex, or by the largest id.
    stated = file.first("vertices", "num_nodes")
    counted = (
        options.vertices,
        file.number(stated) if stated else None,
        rows,
        *(None if array is None else array.shape[0] for array in (features, labels)),
        lambda largest, count: believable(largest + 1, count, name),
    )
    return RawGraph(
        next(count for count in counted if count is not None),
        edges,
        features,
        labels,
        splits or None,
        classes=file.number("classes") if "classes" in file.names else None,
        edges_name=name,
        split_origin=file.path.name,
        notes=notes + file.unused(),
        edge_arrays=edge_arrays,
        times=times,
        edge_splits=held_back,
    )


def _edge_splits(file: NamedArrays, edges: Edges, labelled: bool) -> GivenEdges | None:
    """Read the validation and test edges that arrays of `file` list, or masks mark among its `edges`; None without."""
    found: dict[str, np.ndarray] = {}
    for split, known in _EDGE_SPLITS.items():
        if name := file.first(*known):
            found[split] = checked_pairs(file.array(name), file.label(name), rows=True)
    masks = {split: name for split, known in _EDGE_MASKS.items() if (name := file.first(*known))}
    if found and masks:
        raise DataError(f"{file.path} lists validation or test edges, and marks some by masks; keep one")
    for split, name in masks.items():
        found[split] = marked_edges(edges, file.array(name), file.label(name))
    if not found:
        return None
    none = np.empty((2, 0), np.int64)
    negatives = {
        split: checked_pairs(file.array(name), file.label(name), rows=True)
        for split, known in _NEGATIVES.items()
        if (name := file.first(*known))
    }
    # Marked edges stay in the graph and lose their labels; listed ones are not in it.
    held = HELD_LABELS if labelled and masks else HELD_EDGES
    return GivenEdges(found.get("val", none), found.get("test", none), negatives, held, f"source: {file.path.name}")


def _edges(file: NamedArrays, options: ReadOptions) -> tuple[Edges, str, int | None, list[str]]:
    """Read edges [2, E]; also return their name in messages, the rows of a compressed adjacency, and notes."""
    if "format" in file.names:
        # An adjacency matrix as scipy.sparse.save_npz writes it: entry (i, j) is the edge from i to j.
        matrix = read_sparse(file.path, options.workspace)
        if matrix.shape[0] != matrix.shape[1]:
            raise DataError(f"{file.path} holds a matrix of shape {matrix.shape}; an adjacency matrix must be square")
        file.taken |= file.names & _SCIPY
        edges = edges_of_rows(matrix.indptr, matrix.indices, str(file.path), rows_are="source")
        return edges, str(file.path), matrix.shape[0], unused_values(matrix.data, str(file.path))
    # Compressed lists are those of in-neighbours, as in leapmpi's own files.
    if {"indptr", "indices"} <= file.names:
        indptr = file.array("indptr")
        edges = edges_of_rows(indptr, file.array("indices"), str(file.path), rows_are="destination")
        return edges, file.label("indices"), len(indptr) - 1, []
    name = file.first("edge_index", "edges")
    if name is None and (pair := _ends(file.names)):
        source, destination = (whole_numbers(file.array(end), file.label(end)) for end in pair)
        if source.shape != destination.shape or source.ndim != 1:
            shapes = f"{list(source.shape)} and {list(destination.shape)}"
            raise DataError(f"{file.path}: arrays {' and '.join(pair)} must be lists of one length, but are {shapes}")
        return np.stack([source, destination]), file.label(pair[0]), None, []
    if name is None:
        raise DataError(
            f"{file.path} holds no edges: it has neither indptr and indices, nor edge_index, edges, or src and dst"
        )
    found = whole_numbers(file.array(name), file.label(name))
    in_rows, shape = (True, "[2, edges]") if name == "edge_index" else (False, "[edges, 2]")
    if found.ndim != 2 or found.shape[0 if in_rows else 1] != 2:
        raise DataError(f"{file.label(name)} must have shape {shape}, but it is {found.shape}")
    return (found if in_rows else found.T), file.label(name), None, []


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
