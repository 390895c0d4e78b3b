"""A folder of .npy files: a graph in arrays under the generic names in data_prep/IMPORT.md, one per file."""

from __future__ import annotations

from pathlib import Path

from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source
from data_prep.formats.array_files import NpyFolder, npy_names
from data_prep.sources import npz
from leapmpi.errors import DataError

SUMMARY = "folder of .npy files: edge_index, edges, or indptr and indices; features, labels, train, ..."
OPTIONS = npz.OPTIONS


def can_read(path: Path) -> bool:
    return path.is_dir() and npz.holds_edges(npy_names(path))


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in the files of the folder `path`; `options` may add features and labels from other files."""
    if not can_read(path):
        raise DataError(f"{path} must be a folder with edge_index.npy, edges.npy, or indptr.npy and indices.npy")
    file = NpyFolder(path, options.workspace)
    graph = npz.graph_of(file, options)
    graph.notes.clear()  # the note on files says it
    graph.files = {file.file(name): name for name in sorted(file.taken)}
    return graph


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
