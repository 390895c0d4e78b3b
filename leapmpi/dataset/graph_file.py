"""Graph file: a Graph written to HDF5 and opened again. `data_prep/FORMAT.md` describes the format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from leapmpi.dataset.content_hash import uuid_of
from leapmpi.dataset.edge_data import map_edge_data
from leapmpi.dataset.edge_splits import COUNTS, map_edge_splits
from leapmpi.dataset.graph import Graph, counts, whole_lanes
from leapmpi.dataset.graph_types import map_types
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.hdf5.opened_file import OpenedFile
from leapmpi.dataset.hdf5.reader import map_array, opened, required
from leapmpi.dataset.hdf5.row_blocks import row_blocks
from leapmpi.dataset.hdf5.writer import new_file, write_attributes
from leapmpi.dataset.scan import is_natural, is_scanned, scan
from leapmpi.dataset.sparse_features import Features, SparseFeatures
from leapmpi.dataset.typed_rows import map_typed_rows
from leapmpi.dataset.validation import check_bounds, check_outline
from leapmpi.errors import DataError
from leapmpi.system.atomic_files import written_aside

_STRUCTURAL = (
    *(names.FORMAT, names.VERSION, names.CREATOR, names.CREATED, names.GRAPH_UUID),
    *("vertices", "edges", "feature_dim", "classes", "multilabel", "has_split"),
    *(names.FEATURE_STORAGE, names.FEATURE_ENTRIES, names.FEATURE_DTYPE, names.LABEL_KIND),
    *(names.HAS_EDGE_WEIGHT, names.HAS_EDGE_TIME, names.EDGE_FEATURE_DIM),
    *(names.EDGE_CLASSES, names.HAS_VERTEX_TIME, names.HELD_BACK, names.HAS_SPLIT_TIME),
    *(names.VERTEX_TYPES, names.RELATIONS),
    *COUNTS.values(),
    *names.NEGATIVE_COUNTS,
)
"""Root attributes that follow from the arrays; all others are `Graph.attributes`."""


def write_graph(
    path: Path | str, graph: Graph, *, overwrite: bool = False, progress: Callable[[int], object] | None = None
) -> None:
    """Check `graph` and write it to `path` in one pass over its arrays; the file appears only when complete.

    Arrays may be mapped and larger than memory; dense `graph.features` may be anything that has a shape and a dtype
    and gives rows when it is sliced. progress: called with the number of vertices done.

    Raises DataError when the graph has a fault or `path` exists and `overwrite` is false; ResourceError when the
    disk is full.
    """
    # The scan below checks the rest.
    where = "the graph"
    check_outline(graph, where)
    if Path(path).is_dir():
        raise DataError(f"{path} is a folder; name the graph file to write")
    origin = {name: value for name, value in graph.attributes.items() if name not in _STRUCTURAL}
    original_of = None if is_natural(graph.original_id) else graph.original_id

    with written_aside(path, overwrite=overwrite) as aside, new_file(aside) as file:
        arrays = {name: array for name, array in graph.file_arrays().items() if array is not None}
        writers = {name: file.array(name, array.shape, array.dtype) for name, array in arrays.items()}

        # One scan checks, hashes and writes the large arrays; the small ones follow.
        sinks = {name: writer.append for name, writer in writers.items() if is_scanned(name)}
        lanes = scan(graph, original_of, graph.vertices, 0, where, sinks=sinks, progress=progress)
        for name, writer in writers.items():
            for block in row_blocks(arrays[name]) if name not in sinks else ():
                writer.append(block)
            writer.finish()

        with np.errstate(over="ignore"):
            lanes += whole_lanes(graph, graph.original_id, graph.edge_splits)
        uuid = uuid_of(lanes, graph.vertices, graph.edges, graph.feature_dim, graph.classes)
        write_attributes(file, names.GRAPH_FORMAT, {**origin, **counts(graph), names.GRAPH_UUID: uuid})


def open_graph(path: Path | str) -> Graph:
    """Open the graph in file `path`, its arrays mapped read-only. Sizes are checked, contents are not (see verify).

    Raises DataError if the file is missing, foreign, truncated, damaged or of an unknown version.
    """
    path = Path(path)
    with opened(path, names.GRAPH_FORMAT) as (file, found):
        # Sizes follow from the root attributes; an array of another size is refused.
        rows, edges = (required(found, name, int, path) for name in ("vertices", "edges"))
        arrays = map_rows(file, path, found, rows, edges)
        if isinstance(arrays[2], SparseFeatures):
            check_entries(found.get(names.FEATURE_ENTRIES), len(arrays[2].indices), path)
        types, typed = map_types(file, path, found), None
        if types is not None:
            offsets = np.array(map_array(file, names.TYPE_OFFSETS, ("<i8",), (len(types.vertices) + 1,)))
            # Offsets cut the arrays that are mapped next, so they are checked at once.
            check_bounds(offsets, rows, str(path), names.TYPE_OFFSETS, "vertices")
            typed = map_typed_rows(file, types, offsets)
        return Graph(
            *arrays,
            classes=required(found, "classes", int, path),
            attributes={name: value for name, value in found.items() if name not in _STRUCTURAL},
            uuid=required(found, names.GRAPH_UUID, str, path),
            edge_data=map_edge_data(file, path, found, edges),
            edge_splits=map_edge_splits(file, path, found),
            regression=label_kind(found, path) == names.REGRESSION,
            time=map_times(file, found, rows),
            feature_scale=map_scale(file, path, found),
            typed=typed,
        )


def label_kind(found: Attributes, path: Path) -> str:
    """Return the kind of labels of the file `path` with the root attributes `found`, one of names.LABEL_KINDS.

    Raises DataError for an unknown kind, or one that contradicts `multilabel`.
    """
    multilabel = required(found, "multilabel", bool, path)
    kind = found.get(names.LABEL_KIND, names.MULTI_LABEL if multilabel else names.MULTI_CLASS)
    if kind not in names.LABEL_KINDS or multilabel != (kind == names.MULTI_LABEL):
        raise DataError(f"{path}: attribute {names.LABEL_KIND} is {kind!r} where multilabel is {multilabel}")
    return str(kind)


_Mapped = tuple[np.ndarray, np.ndarray, Features | None, np.ndarray | None, np.ndarray | None, np.ndarray]


def map_rows(file: OpenedFile, path: Path, found: Attributes, rows: int, edges: int) -> _Mapped:
    """Map the fields of a VertexRows of `rows` vertices and `edges` in-edges; `found` are the file's attributes."""

    def mapped(name: str, dtype: str, *shape: int) -> np.ndarray:
        return map_array(file, name, (dtype,), shape)

    vertices, width, classes = (required(found, name, int, path) for name in ("vertices", "feature_dim", "classes"))
    has_split = required(found, "has_split", bool, path)
    single = label_kind(found, path) == names.MULTI_CLASS
    label_dtype, label_shape = ("<i8", (rows,)) if single else ("<f4", (rows, classes))
    return (
        mapped(names.INDPTR, "<i8", rows + 1),
        mapped(names.INDICES, names.index_dtype(vertices), edges),
        _map_features(file, path, found, rows, width) if width else None,
        mapped(names.LABELS, label_dtype, *label_shape) if classes else None,
        mapped(names.SPLIT, "|i1", rows) if has_split else None,
        mapped(names.ORIGINAL_ID, "<i8", rows),
    )


def map_times(file: OpenedFile, found: Attributes, rows: int) -> np.ndarray | None:
    """Map the times of `rows` vertices; None if `found` lists none."""
    if not found.get(names.HAS_VERTEX_TIME, False):
        return None
    return map_array(file, names.VERTEX_TIME, ("<i8",), (rows,))


def map_scale(file: OpenedFile, path: Path, found: Attributes) -> np.ndarray | None:
    """Copy step and middle of each column of int8 features; None for features of another type."""
    if found.get(names.FEATURE_DTYPE) != "int8":
        return None
    shape = 2, required(found, "feature_dim", int, path)
    return np.array(map_array(file, names.FEATURE_SCALE, ("<f4",), shape))


def feature_dtypes(found: Attributes, path: Path) -> tuple[str, ...]:
    """Return the dtypes of feature arrays of `path`, by its attribute. Raises DataError for an unknown one."""
    named = found.get(names.FEATURE_DTYPE)
    if named is None:
        return names.FEATURE_DTYPES["float32"], names.FEATURE_DTYPES["float16"]
    if named not in names.FEATURE_DTYPES:
        known = ", ".join(names.FEATURE_DTYPES)
        raise DataError(f"{path}: attribute {names.FEATURE_DTYPE} is {named!r}, none of {known}; make it again")
    return (names.FEATURE_DTYPES[str(named)],)


def check_entries(stored: object, found: int, path: Path) -> None:
    """Raise DataError unless the attribute `stored` of `path` equals the number of entries found."""
    if stored != found:
        raise DataError(f"{path}: attribute {names.FEATURE_ENTRIES} is {stored}, but there are {found}; make it again")


def _map_features(file: OpenedFile, path: Path, found: Attributes, rows: int, width: int) -> Features:
    """Map features, dense or sparse by `found`. Bounds of sparse rows are checked before entries are read."""
    storage = found.get(names.FEATURE_STORAGE, names.DENSE)
    dtypes = feature_dtypes(found, path)
    if storage == names.DENSE:
        return map_array(file, names.FEATURES, dtypes, (rows, width))
    if storage != names.SPARSE:
        raise DataError(f"{path}: attribute {names.FEATURE_STORAGE} is {storage!r}, neither dense nor sparse")

    # The number of entries is known by the arrays alone.
    shape = file.array(names.FEATURE_INDICES).shape
    indptr = map_array(file, names.FEATURE_INDPTR, ("<i8",), (rows + 1,))
    indices = map_array(file, names.FEATURE_INDICES, ("<i4",), shape)
    features = SparseFeatures(indptr, indices, map_array(file, names.FEATURE_DATA, dtypes, shape), width)
    check_bounds(indptr, len(indices), str(path), names.FEATURE_INDPTR, "entries")
    return features
