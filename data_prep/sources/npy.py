"""A folder of .npy files: a graph in arrays under the generic names in data_prep/IMPORT.md; or one .npy of edges."""

from __future__ import annotations

from pathlib import Path

from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source, believable, whole_numbers
from data_prep.formats.array_files import NpyFolder, npy_names, read_array, read_companions
from data_prep.formats.npz_reader import read_header
from data_prep.sources import npz
from leapmpi.errors import DataError

SUMMARY = (
    "folder of .npy files: edge_index, edges, or indptr and indices; features, labels, train; or one .npy of edges"
)
OPTIONS = npz.OPTIONS


def can_read(path: Path) -> bool:
    """Recognise a folder with arrays of edges, or an .npy of whole numbers with two rows or columns, by its header."""
    if path.is_dir():
        return npz.holds_edges(npy_names(path))
    if path.suffix != ".npy" or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            shape, _, dtype = read_header(file, path.stat().st_size)
    except (ValueError, EOFError):
        return False
    return dtype.kind in "iu" and len(shape) == 2 and 2 in shape


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in the files of the folder `path`, or of the edges [2, E] or [E, 2] in the file `path`.

    `options` may add features and labels from other files.
    """
    if not can_read(path):
        raise DataError(
            f"{path} must be a folder with edge_index.npy, edges.npy, or indptr.npy and indices.npy, or a file of "
            "whole numbers, [2, edges] or [edges, 2]"
        )
    if path.is_file():
        return _edges_alone(path, options)
    file = NpyFolder(path, options.workspace)
    graph = npz.graph_of(file, options)
    graph.notes.clear()  # the note on files says it
    graph.files = {file.file(name): name for name in sorted(file.taken)}
    return graph


def _edges_alone(path: Path, options: ReadOptions) -> RawGraph:
    """Read one array of edges; the number of vertices is stated, that of rows of features or labels, or by the ids."""
    found = whole_numbers(read_array(path), str(path))
    edges = found if found.shape[0] == 2 else found.T
    features, labels = read_companions(options)
    rows = (array.shape[0] for array in (features, labels) if array is not None)

    def by_largest_id(largest: int, count: int) -> int:
        return believable(largest + 1, count, str(path))

    vertices = options.vertices or next(rows, None) or by_largest_id
    return RawGraph(vertices, edges, features, labels, edges_name=str(path))


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
