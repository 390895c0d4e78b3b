"""The .npz layout of the GraphData collection: pickled scipy matrices adj_matrix and node_attr, and node_label."""

from __future__ import annotations

from pathlib import Path

from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source, SparseRows, edges_of_rows, unused_values
from data_prep.formats.array_files import companions_of
from data_prep.formats.npz_reader import NpzFile, npz_names
from leapmpi.errors import DataError

SUMMARY = ".npz of GraphData: pickled adj_matrix and node_attr, node_label"
OPTIONS = frozenset({"features", "labels"})


def can_read(path: Path) -> bool:
    """Recognise the archive by adj_matrix."""
    return path.suffix == ".npz" and "adj_matrix" in npz_names(path)


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in the archive at `path`; entry (i, j) of its matrix is the edge from i to j. It has no splits."""
    file = NpzFile(path, options.workspace)
    matrix = file.read("adj_matrix")
    if not isinstance(matrix, SparseRows) or matrix.shape[0] != matrix.shape[1]:
        raise DataError(f"{file.label('adj_matrix')} must be a square sparse matrix")
    name = file.label("adj_matrix")
    edges = edges_of_rows(matrix.indptr, matrix.indices, name, rows_are="source")
    features, labels = companions_of(file, options, ["node_attr"], "node_label")
    notes = [*unused_values(matrix.data, name), *file.unused()]
    return RawGraph(matrix.shape[0], edges, features, labels, edges_name=name, notes=notes)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
