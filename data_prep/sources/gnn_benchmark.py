"""The .npz layout of gnn-benchmark (Shchur et al., arXiv:1811.05868): raw parts of CSR matrices, without pickles."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source, edges_of_rows, unused_values
from data_prep.formats.array_files import companions_of
from data_prep.formats.npz_reader import NpzFile, npz_names
from leapmpi.errors import DataError

SUMMARY = ".npz of gnn-benchmark: adj_data, adj_indices, adj_indptr, attr_*, labels"
OPTIONS = frozenset({"features", "labels"})

# The project has used two spellings.
_ADJACENCY = ("adj_", "adj_matrix.")
_FEATURES = ("attr", "attr_matrix")


def can_read(path: Path) -> bool:
    """Recognise the archive by the row pointers of its adjacency matrix."""
    return path.suffix == ".npz" and any(f"{prefix}indptr" in npz_names(path) for prefix in _ADJACENCY)


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in the archive at `path`; entry (i, j) of its matrix is the edge from i to j. It has no splits."""
    file = NpzFile(path, options.workspace)
    prefix = next((prefix for prefix in _ADJACENCY if f"{prefix}indptr" in file.names), None)
    if prefix is None:
        raise DataError(f"{path} is not in gnn-benchmark's layout: it has no array 'adj_indptr'")
    indptr, indices = file.array(f"{prefix}indptr"), file.array(f"{prefix}indices")
    edges = edges_of_rows(indptr, indices, f"{path}: {prefix}*", rows_are="source")
    features, labels = companions_of(file, options, _FEATURES, "labels")
    notes = file.unused([f"{prefix}data", f"{prefix}shape"])
    if f"{prefix}data" in file.names:
        values = file.rows(f"{prefix}data")
        notes += unused_values(values, f"{path}: {prefix}*") if isinstance(values, np.ndarray) else []
    return RawGraph(len(indptr) - 1, edges, features, labels, edges_name=file.label(f"{prefix}indices"), notes=notes)


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
