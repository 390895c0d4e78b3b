"""MATLAB files of graphs as DeepWalk's are distributed: a sparse `network`, and the vertices' groups in `group`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from data_prep.edges.raw_graph import RawGraph, ReadOptions, Source, unused_values
from data_prep.formats.array_files import read_companions
from data_prep.formats.mat_file import SparseColumns, Variable, read_mat
from data_prep.workspace import require_whole
from leapmpi.dataset.hdf5.names import REGRESSION
from leapmpi.errors import ConfigError, DataError, counted

SUMMARY = "MATLAB .mat, versions 5 to 7: sparse network, group"
OPTIONS = frozenset({"features", "labels", "label_column"})

_NETWORKS = ("network", "a", "adj", "adjacency")
_GROUPS = ("group", "groups", "label", "labels", "gnd", "y")
# Facebook100 (Traud, Mucha, Porter, Physica A 2012): a column for each attribute of a person, 0 where it is missing.
_PERSONS = "local_info"
_PERSON_COLUMNS = ("status", "gender", "major", "minor", "dorm", "year", "high_school")

_FEATURES = ("attrb", "attributes", "features", "feature", "x")

# Many classes are only believed where many vertices are in them: labels are stored densely.
_FEW_CLASSES = 1000

_TIMES = 12
"""Bytes held per byte of the compressed file; measured on blogcatalog: 11."""


def can_read(path: Path) -> bool:
    """Recognise .mat; names of its matrices are checked when they are read."""
    return path.suffix.lower() == ".mat" and path.is_file()


def read(path: Path, options: ReadOptions) -> RawGraph:
    """Read the graph in `path`; entry (i, j) of its network is the edge from i to j.

    Ungrouped vertices are unlabelled.
    """
    # The file is held whole; its variables are found by their usual names.
    require_whole(str(path), path.stat().st_size, _TIMES, options.workspace)
    variables = read_mat(path, options.workspace)
    network, name = _network(variables, path)
    vertices = network.shape[0]

    # Files that the user names win over variables, and variables that the user names over others.
    readable = [name for name, content in variables.items() if not isinstance(content, str)]
    options, named_features, named_labels = options.of_source(readable, path)
    features, labels = read_companions(options)
    notes: list[str] = []
    taken, class_names = {name}, None
    if options.label_column is not None:
        found = named_labels or (_PERSONS if _PERSONS in readable else _first(readable, _GROUPS))
        labels, class_names = _column(variables, found, options.label_column, path)
        if options.task == REGRESSION:
            labels, class_names = np.where(labels < 0, np.nan, np.array(class_names, float)[labels]), None
        taken.add(found or "")
    elif labels is None and (found := named_labels or _first(readable, _GROUPS)):
        labels, notes = _labels(variables[found], vertices, f"{path}: variable {found!r}")
        taken.add(found)
    if features is None and (found := named_features or _first(readable, _FEATURES)):
        features = variables[found]
        taken.add(found)
        if isinstance(features, SparseColumns):
            # The columns are in the file, one number each, but not the rows.
            rows, columns = features.shape
            if rows > 100 * columns + 10**7:
                raise DataError(
                    f"{path}: variable {found!r} has {counted(rows, 'row')} and {columns:,} columns; these are not "
                    "features"
                )
            features = features.by_rows()
    notes += [*unused_values(network.data, f"{path.name}: {name}"), *_unused(variables, taken, path)]
    edges = np.stack([network.row, network.column])
    return RawGraph(
        vertices, edges, features, labels, edges_name=f"{path}: variable {name!r}", notes=notes, class_names=class_names
    )


def _first(names: Iterable[str], known: tuple[str, ...]) -> str | None:
    lower = {name.lower(): name for name in names}
    return next((lower[name] for name in known if name in lower), None)


def _network(variables: dict[str, Variable], path: Path) -> tuple[SparseColumns, str]:
    """Find the adjacency matrix and its name: by a usual name, else the only square sparse matrix."""
    sparse = {name: content for name, content in variables.items() if isinstance(content, SparseColumns)}
    square = [name for name, content in sparse.items() if content.shape[0] == content.shape[1]]
    named = _first(sparse, _NETWORKS) or (square[0] if len(square) == 1 else None)
    if named is None:
        listed = ", ".join(f"{name} ({_described(content)})" for name, content in variables.items())
        raise DataError(f"{path} has no sparse matrix called network; it holds {listed or 'nothing'}")
    if named not in square:
        raise DataError(f"{path}: {named} is of shape {sparse[named].shape}; an adjacency matrix must be square")
    return sparse[named], named


def _described(content: Variable) -> str:
    if isinstance(content, str):
        return content
    return f"{'sparse ' if isinstance(content, SparseColumns) else ''}{' x '.join(map(str, content.shape))}"


def _unused(variables: dict[str, Variable], taken: set[str], path: Path) -> list[str]:
    """Name the variables that were not `taken`, and how to take one as labels, in a note."""
    others = {name: content for name, content in variables.items() if name not in taken}
    if not others:
        return []
    how = f"--label-column {'|'.join(_PERSON_COLUMNS)} takes a column of {_PERSONS} as classes"
    hint = how if _PERSONS in others else "--labels NAME, --features NAME take one"
    return [f"{path.name}: not used: {', '.join(f'{name} ({_described(others[name])})' for name in others)}; {hint}"]


def _column(variables: dict[str, Variable], name: str | None, column: str, path: Path) -> tuple[np.ndarray, list[str]]:
    """Return classes int64[n] from a column, by number or by a name of Facebook100, and the source's names for them.

    Raises ConfigError where the variable `name` is not a full matrix, or has no such column.
    """
    content = variables.get(name or "")
    if not isinstance(content, np.ndarray) or content.ndim != 2:
        described = f"variable {name!r} is {_described(content)}" if content is not None else "there is none"
        raise ConfigError(f"--label-column {column}: {path}: {described}; name a full matrix by --labels")
    names = [str(number) for number in range(content.shape[1])]
    persons = name == _PERSONS and content.shape[1] == len(_PERSON_COLUMNS)
    known = [*names, *(_PERSON_COLUMNS if persons else ())]
    if column not in known:
        raise ConfigError(f"--label-column {column}: {path}: variable {name!r} has the columns {', '.join(known)}")

    # Classes are numbered by ascending value; 0 is missing in Facebook100.
    values = content[:, known.index(column) % content.shape[1]].astype(np.float64)
    missing = np.isnan(values) | (values == 0 if persons else False)
    found, numbers = np.unique(values[~missing], return_inverse=True)
    labels = np.full(len(values), -1, np.int64)
    labels[~missing] = numbers
    return labels, [f"{value:.15g}" for value in found]


def _labels(content: Variable, vertices: int, name: str) -> tuple[np.ndarray, list[str]]:
    """Return classes int64[n] where no vertex is in several groups, else float32[n, C] with NaN for vertices in
    none.
    """
    if isinstance(content, np.ndarray):
        # A full matrix; a row or column of classes that MATLAB counted from 1 is counted from 0 instead.
        if content.ndim != 2 or 1 not in content.shape:
            return content, []
        column = content.reshape(-1).astype(np.float64)
        if len(column) and column.min() == 1:
            return column - 1, ["the classes of the source are counted from 1; here from 0"]
        return column, []
    if content.shape[0] != vertices:
        raise DataError(
            f"{name} has {counted(content.shape[0], 'row')}, but the graph has {counted(vertices, 'vertex')}"
        )

    # One group per vertex at most: classes.
    member = content.data != 0
    vertex, group = content.row[member], content.column[member]
    groups = np.bincount(vertex, minlength=vertices)
    if groups.max(initial=0) <= 1:
        labels = np.full(vertices, -1, np.int64)
        labels[vertex] = group
        return labels, [f"{name}: no vertex is in several groups, so they were read as classes (not multi-label)"]

    # Several: multi-label, stored densely.
    if content.shape[1] > _FEW_CLASSES and vertices * content.shape[1] > _FEW_CLASSES * len(vertex):
        raise DataError(f"{name} has {counted(content.shape[1], 'group')}, but only {len(vertex):,} memberships")
    labels = np.zeros((vertices, content.shape[1]), np.float32)
    labels[vertex, group] = 1
    labels[groups == 0] = np.nan
    lost = int((groups == 0).sum())
    return labels, [f"{name}: without a group, and taken as unlabelled: {counted(lost, 'vertex')}"] if lost else []


MEMBER = Source(SUMMARY, OPTIONS, can_read, read)
