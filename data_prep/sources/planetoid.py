"""Planetoid's raw files (Yang, Cohen, Salakhutdinov, ICML 2016): ind.NAME.{x,y,tx,ty,allx,ally,graph,test.index}.

The first vertices are the rows of allx; as many of them as y has rows are for training; row k of tx belongs to the
vertex on line k of test.index. Ids that occur in neither are vertices without features and label.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source, SparseRows
from data_prep.formats.numeric_text import read_numbers
from data_prep.formats.restricted_unpickler import load_pickle
from data_prep.workspace import require_whole
from leapmpi.errors import DataError, counted

SUMMARY = "folder with Planetoid's raw files ind.NAME.x, ... ind.NAME.test.index, or its ind.NAME.graph"
OPTIONS = frozenset({"missing_features"})

# The public split validates on the 500 vertices after the training ones.
_VALIDATION = 500

_SPARSEST = 10
"""With this many times more ids than rows and edges, an id is damaged."""

_TIMES = 8
"""Bytes held per byte of the files; measured on nell: 6."""


def can_read(path: Path) -> bool:
    """Recognise ind.NAME.graph, or a folder with such a file."""
    return any(path.glob("ind.*.graph")) if path.is_dir() else path.match("ind.*.graph")


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph whose files are in the folder `path` or beside the file ind.NAME.graph, with the public split."""
    # The files of one graph.
    graphs = sorted(path.glob("ind.*.graph")) if path.is_dir() else [path]
    if len(graphs) != 1:
        named = ", ".join(str(graph) for graph in graphs) or "none here"
        raise DataError(f"{path} must hold one graph; name one of its files ind.NAME.graph instead: {named}")
    stem = graphs[0].with_suffix("")
    size = sum(file.stat().st_size for file in stem.parent.glob(f"{stem.name}.*"))
    require_whole(str(path), size, _TIMES, options.workspace)

    # Rows of allx, then test vertices at the ids in test.index.
    edges = _edges(graphs[0])
    first = _matrix(stem, "allx")
    test = _matrix(stem, "tx")
    test_ids = _test_ids(stem, test.shape[0], first.shape)
    vertices = _vertices(first.shape[0], edges, test_ids, stem)

    # Labels, and the public split.
    labels, classes, trained, notes = _labels(stem, test_ids, first.shape[0], vertices)
    splits = {"train": np.arange(trained), "test": test_ids}
    if _file(stem, "ally").exists():
        splits["val"] = np.arange(trained, min(trained + _VALIDATION, first.shape[0]))

    # Features; some vertices may have none.
    without = np.setdiff1d(np.arange(first.shape[0], vertices), test_ids)
    one_hot = without if options.missing_features == "one-hot" else without[:0]
    features = _features(first, test, test_ids, one_hot, vertices)
    if len(one_hot):
        notes.append(
            f"{counted(len(without), 'vertex')} without a feature row in the source: each has a column of its own"
        )
    elif len(without):
        notes.append(
            f"{counted(len(without), 'vertex')} without a feature row in the source: their features are zero "
            "(--missing-features one-hot gives each a column of its own)"
        )
    origin = "Planetoid's public split"
    parts = {"graph": "edges", "allx": "features", "tx": "features", "y": "labels", "ally": "labels", "ty": "labels"}
    parts |= {"test.index": "test vertices", "x": "features, all in allx too"}
    files = {file.name: what for part, what in parts.items() if (file := _file(stem, part)).exists()}
    return RawGraph(vertices, edges, features, labels, splits, classes, str(graphs[0]), origin, notes, files=files)


def _file(stem: Path, part: str) -> Path:
    return stem.with_name(f"{stem.name}.{part}")


def _existing(path: Path) -> Path:
    if not path.exists():
        raise DataError(f"{path} is missing; Planetoid's files belong together in one folder")
    return path


def _unpickled(path: Path) -> object:
    with _existing(path).open("rb") as file:
        return load_pickle(file, str(path))


def _matrix(stem: Path, part: str) -> SparseRows:
    found = _unpickled(_file(stem, part))
    if not isinstance(found, SparseRows):
        raise DataError(f"{_file(stem, part)} must hold a sparse matrix")
    return found


def _one_hot(stem: Path, part: str) -> np.ndarray:
    found = _unpickled(_file(stem, part))
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype.kind not in "biuf":
        raise DataError(f"{_file(stem, part)} must hold a matrix of one-hot labels")
    return found


def _edges(path: Path) -> np.ndarray:
    """Return int64[2, E] from the pickled lists of neighbours; the key is the source, as in an adjacency matrix."""
    lists = _unpickled(path)
    if not isinstance(lists, dict):
        raise DataError(f"{path} must hold a dict of neighbour lists")
    try:
        degree = np.fromiter((len(neighbours) for neighbours in lists.values()), np.int64, len(lists))
        source = np.repeat(np.fromiter(lists, np.int64, len(lists)), degree)
        flat = (neighbour for neighbours in lists.values() for neighbour in neighbours)
        return np.stack([source, np.fromiter(flat, np.int64, int(degree.sum()))])
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: the neighbour lists must hold vertex ids ({error})") from error


def _test_ids(stem: Path, rows: int, first_shape: tuple[int, int]) -> np.ndarray:
    path = _existing(_file(stem, "test.index"))
    ids = read_numbers(path, np.int64).reshape(-1)
    if len(ids) != rows:
        raise DataError(
            f"{path} names {counted(len(ids), 'vertex')}, but {_file(stem, 'tx').name} has {counted(rows, 'row')}"
        )
    if len(ids) and ids.min() < first_shape[0]:
        row = int(ids.argmin())
        raise DataError(f"{path}, row {row}: id {ids[row]} already belongs to row {ids[row]} of allx")
    return ids


def _vertices(rows: int, edges: np.ndarray, test_ids: np.ndarray, stem: Path) -> int:
    """Count the vertices: the largest id plus one. Raises DataError for a stray number."""
    largest = {"graph": int(edges.max(initial=-1)), "test.index": int(test_ids.max(initial=-1)), "allx": rows - 1}
    part = max(largest, key=lambda name: largest[name])
    named = rows + len(test_ids) + edges.shape[1]
    if largest[part] > _SPARSEST * named:
        raise DataError(
            f"{_file(stem, part)} names vertex {largest[part]:,}, but there are only {named:,} rows and edges; "
            "ids run from 0 on; is the file damaged?"
        )
    return largest[part] + 1


def _features(
    first: SparseRows, test: SparseRows, test_ids: np.ndarray, one_hot: np.ndarray, vertices: int
) -> SparseRows:
    """Stack the rows of both matrices, and add a column with a 1 for each of the vertices `one_hot`, in their order.

    So Kipf and Welling (ICLR 2017, section 5.1) extend the features of NELL, to 61,278 columns.
    """
    width = max(first.shape[1], test.shape[1])
    ones = np.ones(len(one_hot), first.data.dtype)
    return SparseRows.from_triplets(
        np.concatenate([first.row, test_ids[test.row], one_hot]),
        np.concatenate([first.indices, test.indices, width + np.arange(len(one_hot))]),
        np.concatenate([first.data, test.data, ones]),
        (vertices, width + len(one_hot)),
    )


def _labels(stem: Path, test_ids: np.ndarray, rows: int, vertices: int) -> tuple[np.ndarray, int, int, list[str]]:
    """Return labels int64[n], counts of classes and training vertices, and notes. Rows without a one are unlabelled."""
    train = _one_hot(stem, "y")
    test = _one_hot(stem, "ty")
    first, notes = train, []
    if _file(stem, "ally").exists():
        first = _one_hot(stem, "ally")
    else:
        missing = f"{_file(stem, 'ally').name} is missing"
        notes.append(f"{missing}: only training and test vertices are labelled, no validation")
    if len(first) > rows or len(test) != len(test_ids) or first.shape[1] != test.shape[1]:
        raise DataError(f"{stem.parent}: the labels y, ally and ty do not fit the rows of allx and tx")

    # Of each row the column of its one.
    labels = np.full(vertices, -1, np.int64)
    for ids, one_hot in ((np.arange(len(first)), first), (test_ids, test)):
        labels[ids] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    return labels, first.shape[1], len(train), notes


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
