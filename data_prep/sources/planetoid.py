"""Planetoid's raw files (Yang, Cohen, Salakhutdinov, ICML 2016): ind.NAME.{x,y,tx,ty,allx,ally,graph,test.index}.

The first vertices are the rows of allx, of which as many as y has are for training; row k of tx belongs to the vertex
on line k of test.index. Ids that occur in neither are vertices without features and label.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.edges.raw_graph import RawGraph, ReadOptions, SparseRows
from data_prep.formats.numeric_text import read_numbers
from data_prep.formats.restricted_unpickler import load_pickle
from data_prep.workspace import require_whole
from leapmpi.errors import DataError

SUMMARY = "folder with Planetoid's raw files ind.NAME.x, ... ind.NAME.test.index, or its ind.NAME.graph"
OPTIONS = frozenset({"missing_features"})

# The public split validates on the 500 vertices after the training ones.
_VALIDATION = 500

_TIMES = 8
"""Bytes held per byte of the files; measured on nell: 6."""


def can_read(path: Path) -> bool:
    """Whether `path` is a folder with Planetoid files, or the file ind.NAME.graph among them."""
    return any(path.glob("ind.*.graph")) if path.is_dir() else path.match("ind.*.graph")


def read(path: Path, options: ReadOptions) -> RawGraph:
    """The graph whose files lie in the folder `path` or beside the file ind.NAME.graph, with the public split.

    Raises DataError when a file is missing or damaged, a pickle holds anything but arrays, matrices, lists and dicts,
    or the files do not fit together.
    """
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
    vertices = 1 + int(max(first.shape[0] - 1, test_ids.max(initial=-1), edges.max(initial=-1)))

    # Labels, and the public split.
    labels, classes, trained, notes = _labels(stem, test_ids, first.shape[0], vertices)
    splits = {"train": np.arange(trained), "test": test_ids}
    if _file(stem, "ally").exists():
        splits["val"] = np.arange(trained, min(trained + _VALIDATION, first.shape[0]))

    # Features; some vertices may have none.
    features = _features(first, test, test_ids, vertices)
    without = np.setdiff1d(np.arange(first.shape[0], vertices), test_ids)
    if len(without) and options.missing_features == "one-hot":
        notes.append(f"{len(without):,} vertices have no feature row in the source: each has a column of its own")
        features = _with_one_hot(features, without)
    elif len(without):
        notes.append(
            f"{len(without):,} vertices have no feature row in the source: their features are zero "
            "(--missing-features one-hot gives each a column of its own)"
        )
    return RawGraph(
        vertices=vertices,
        edges=edges,
        features=features,
        labels=labels,
        splits=splits,
        classes=classes,
        edges_name=str(graphs[0]),
        split_origin="Planetoid's public split",
        notes=notes,
    )


def _file(stem: Path, part: str) -> Path:
    return stem.with_name(f"{stem.name}.{part}")


def _unpickled(path: Path) -> object:
    if not path.exists():
        raise DataError(f"{path} is missing; Planetoid's files belong together in one folder")
    with path.open("rb") as file:
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
    """int64[2, E] from the pickled lists of neighbours; the key is the source, as in an adjacency matrix."""
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
    path = _file(stem, "test.index")
    if not path.exists():
        raise DataError(f"{path} is missing; Planetoid's files belong together in one folder")
    ids = read_numbers(path, np.int64).reshape(-1)
    if len(ids) != rows:
        raise DataError(f"{path} names {len(ids):,} vertices, but {_file(stem, 'tx').name} has {rows:,} rows")
    if len(ids) and ids.min() < first_shape[0]:
        row = int(ids.argmin())
        raise DataError(f"{path}, row {row}: id {ids[row]} already belongs to row {ids[row]} of allx")
    return ids


def _features(first: SparseRows, test: SparseRows, test_ids: np.ndarray, vertices: int) -> SparseRows:
    row = [np.repeat(np.arange(first.shape[0]), np.diff(first.indptr)), np.repeat(test_ids, np.diff(test.indptr))]
    return SparseRows.from_triplets(
        np.concatenate(row),
        np.concatenate([first.indices, test.indices]),
        np.concatenate([first.data, test.data]),
        (vertices, max(first.shape[1], test.shape[1])),
    )


def _with_one_hot(features: SparseRows, without: np.ndarray) -> SparseRows:
    """`features` with a further column for each of the vertices `without` features, in their order, that holds a 1.

    So Kipf and Welling (ICLR 2017, section 5.1) extend the features of NELL, to 61,278 columns.
    """
    rows, width = features.shape
    row = np.repeat(np.arange(rows), np.diff(features.indptr))
    return SparseRows.from_triplets(
        np.concatenate([row, without]),
        np.concatenate([features.indices, width + np.arange(len(without))]),
        np.concatenate([features.data, np.ones(len(without), features.data.dtype)]),
        (rows, width + len(without)),
    )


def _labels(stem: Path, test_ids: np.ndarray, rows: int, vertices: int) -> tuple[np.ndarray, int, int, list[str]]:
    """Labels int64[n], the number of classes and of training vertices, and notes. Rows without a one are unlabelled."""
    train = _one_hot(stem, "y")
    test = _one_hot(stem, "ty")
    notes = []
    if _file(stem, "ally").exists():
        first = _one_hot(stem, "ally")
    else:
        first = train
        notes.append(
            f"{_file(stem, 'ally').name} is missing: only training and test vertices are labelled, no validation"
        )
    if len(first) > rows or len(test) != len(test_ids) or first.shape[1] != test.shape[1]:
        raise DataError(f"{stem.parent}: the labels y, ally and ty do not fit the rows of allx and tx")

    # Of each row the column of its one.
    labels = np.full(vertices, -1, np.int64)
    for ids, one_hot in ((np.arange(len(first)), first), (test_ids, test)):
        labels[ids] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    return labels, first.shape[1], len(train), notes
