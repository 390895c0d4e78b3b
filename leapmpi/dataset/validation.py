"""Checks of the arrays of a graph or a part. A DataError names array, row and value of the first fault.

`where` opens each message. In a part, `original_of` maps the renumbered ids to original ids.
"""

from __future__ import annotations

import numpy as np

from leapmpi.dataset.edge_data import check_edge_outline
from leapmpi.dataset.graph import Graph, VertexRows
from leapmpi.dataset.graph_types import GraphTypes
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.row_blocks import row_ranges
from leapmpi.dataset.sparse_features import Features, SparseFeatures
from leapmpi.errors import DataError, counted
from leapmpi.system.jit import compiled

_RANGE, _LOOP, _DUPLICATE, _ORDER, _NOT_FINITE, _ZERO = 1, 2, 3, 4, 5, 6
_RELATION, _ENDS = 7, 8


def check_outline(graph: Graph, where: str) -> None:
    """Check all of a Graph but its in-neighbours, features and edge data, which a scan checks in blocks."""
    _check_shapes(graph, where)
    check_edge_outline(graph.edge_data, graph.edges, where)
    check_ascending(graph.original_id, where, names.ORIGINAL_ID)
    check_bounds(graph.indptr, graph.edges, where)
    if isinstance(graph.features, SparseFeatures):
        entries = len(graph.features.indices)
        check_bounds(graph.features.indptr, entries, where, names.FEATURE_INDPTR, "entries")
    check_vertex_data(graph.labels, graph.split, graph.classes, where, graph.regression)
    if graph.typed is not None:
        check_bounds(graph.typed.offsets, graph.vertices, where, names.TYPE_OFFSETS, "vertices")
        check_typed(graph, where)


def check_typed(rows: VertexRows, where: str) -> None:
    """Check original ids by type, features by type, and that labels and splits are those of the target type alone.

    The offsets of the types must have been checked.
    """
    if rows.typed is None:
        return
    types, offsets = rows.typed.types, rows.typed.offsets
    if rows.features is not None or rows.edge_data.relations != len(types.relations):
        raise DataError(f"{where}: a typed graph has features by type, and a relation for each edge")
    # Vertices of a type are consecutive, and so are their original ids.
    for t, each in enumerate(types.vertices):
        first, end = int(offsets[t]), int(offsets[t + 1])
        ids = rows.original_id[first:end]
        if len(bad := np.flatnonzero((ids < types.bases[t]) | (ids >= types.bases[t + 1]))):
            raise DataError(
                f"{where}: {names.ORIGINAL_ID}, row {first + bad[0]} is {ids[bad[0]]}, but those of type {each.name} "
                f"are {types.bases[t]}..{types.bases[t + 1] - 1}"
            )
        features, scale = rows.typed.features[t], rows.typed.scales[t]
        if (features is None) != (each.feature_dtype is None):
            raise DataError(
                f"{where}: type {each.name} has {counted(each.feature_dim, 'column')} of features by its schema"
            )
        if features is not None and each.feature_dtype is not None:
            dtype, shape = names.FEATURE_DTYPES[each.feature_dtype], (end - first, each.feature_dim)
            _expect(features, (dtype,), shape, where, names.type_features(t))
            check_scale(scale, features, where)
        if each.name != types.target:
            _check_unlabelled(rows, first, end, where, each.name)


def _check_unlabelled(rows: VertexRows, first: int, end: int, where: str, name: str) -> None:
    """Check that the rows first ... end - 1, of type `name`, have neither labels nor splits."""
    if rows.split is not None and (bad := np.flatnonzero(rows.split[first:end] != names.NO_SPLIT)).size:
        raise DataError(f"{where}: {names.SPLIT}, row {first + bad[0]}: type {name} is not the target type")
    if rows.labels is not None:
        labels = rows.labels[first:end]
        known = labels != names.UNLABELLED if labels.ndim == 1 else ~np.isnan(labels).all(axis=1)
        if (bad := np.flatnonzero(known)).size:
            raise DataError(f"{where}: {names.LABELS}, row {first + bad[0]}: type {name} is not the target type")


def _check_shapes(graph: Graph, where: str) -> None:
    n = graph.vertices
    if n < 1:
        raise DataError(f"{where} has no vertices")

    # The topology.
    _expect(graph.indptr, ("<i8",), (n + 1,), where, names.INDPTR)
    _expect(graph.indices, (names.index_dtype(n),), (graph.edges,), where, names.INDICES)
    _expect(graph.original_id, ("<i8",), (n,), where, names.ORIGINAL_ID)

    # The data of the vertices.
    if (graph.labels is None) != (graph.classes == 0):
        raise DataError(f"{where}: classes is {graph.classes}; it must be 0 without labels and at least 1 with labels")
    if graph.features is not None:
        if graph.features.ndim != 2 or graph.features.shape[1] == 0:
            raise DataError(f"{where}: {names.FEATURES} has shape {graph.features.shape}, expected rows with columns")
        sparse = isinstance(graph.features, SparseFeatures)
        dtypes = ("<f4", "<f2") if sparse else tuple(names.FEATURE_DTYPES.values())
        _expect(graph.features, dtypes, (n, graph.features.shape[-1]), where, names.FEATURES)
        check_scale(graph.feature_scale, graph.features, where)
        if isinstance(graph.features, SparseFeatures):
            entries = (len(graph.features.data),)
            _expect(graph.features.indptr, ("<i8",), (n + 1,), where, names.FEATURE_INDPTR)
            _expect(graph.features.indices, ("<i4",), entries, where, names.FEATURE_INDICES)
    if graph.time is not None:
        _expect(graph.time, ("<i8",), (n,), where, names.VERTEX_TIME)
    if graph.split is not None:
        _expect(graph.split, ("|i1",), (n,), where, names.SPLIT)
    if graph.labels is not None and graph.label_kind != names.MULTI_CLASS:
        _expect(graph.labels, ("<f4",), (n, graph.classes), where, names.LABELS)
    elif graph.labels is not None:
        _expect(graph.labels, ("<i8",), (n,), where, names.LABELS)


def check_scale(scale: np.ndarray | None, features: Features, where: str) -> None:
    """Check the steps and middles of the columns of `features`: finite, steps not negative; for int8 alone."""
    if (scale is None) != (features.dtype != np.int8):
        raise DataError(f"{where}: {names.FEATURE_SCALE} goes with features of int8, and these are {features.dtype}")
    if scale is None:
        return
    _expect(scale, ("<f4",), (2, features.shape[1]), where, names.FEATURE_SCALE)
    wrong = ~np.isfinite(scale)
    wrong[0] |= scale[0] < 0
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DataError(
            f"{where}: {names.FEATURE_SCALE}, row {row}, column {column} is {scale[row, column]}, expected a finite "
            f"{'middle' if row else 'step, 0 or more'}"
        )


def _expect(array: Features, dtypes: tuple[str, ...], shape: tuple[int, ...], where: str, name: str) -> None:
    if array.shape != shape:
        raise DataError(f"{where}: {name} has shape {array.shape}, but the graph needs {shape}")
    if array.dtype.newbyteorder("<").str not in dtypes:
        raise DataError(f"{where}: {name} has dtype {array.dtype}, expected {' or '.join(dtypes)}")


def check_ascending(ids: np.ndarray, where: str, name: str) -> None:
    """Check that `ids` are not negative and strictly ascending."""
    if len(ids) and ids[0] < 0:
        raise DataError(f"{where}: {name}, row 0 is {ids[0]}, below 0")
    if len(bad := np.flatnonzero(ids[1:] <= ids[:-1])):
        row = int(bad[0]) + 1
        raise DataError(f"{where}: {name}, row {row} is {ids[row]}, not above {ids[row - 1]} in the row before")


def check_distinct(ids: np.ndarray, where: str, name: str) -> None:
    """Check that `ids` are not negative, and distinct."""
    ordered = np.sort(ids)
    if len(ordered) and ordered[0] < 0:
        raise DataError(f"{where}: {name} has {ordered[0]}, below 0")
    if len(repeated := ordered[1:][ordered[1:] == ordered[:-1]]):
        raise DataError(f"{where}: {name} {repeated[0]} stands in two rows")


@compiled
def _first_fault(indptr, indices, original_of, vertices, first):
    """Return (kind, row, position) of the first fault in the lists of in-neighbours, kind 0 for none."""
    # Original ids ascend strictly in a sound list, so one look back finds duplicates and disorder.
    natural = len(original_of) == 0
    for v in range(len(indptr) - 1):
        before = np.int64(-1)
        for e in range(indptr[v] - indptr[0], indptr[v + 1] - indptr[0]):
            u = np.int64(indices[e])
            if u < 0 or u >= vertices:
                return _RANGE, v, e
            if u == v + first:
                return _LOOP, v, e
            original = u if natural else np.int64(original_of[u])
            if original == before:
                return _DUPLICATE, v, e
            if original < before:
                return _ORDER, v, e
            before = original
    return 0, 0, 0


def check_bounds(indptr: np.ndarray, edges: int, where: str, name: str = names.INDPTR, noun: str = "edges") -> None:
    """Check that `indptr` ascends from 0 to the number of `edges`; messages call the two `name` and `noun`."""
    if indptr[0] != 0:
        raise DataError(f"{where}: {name}, row 0 is {indptr[0]}, expected 0")
    if len(bad := np.flatnonzero(indptr[1:] < indptr[:-1])):
        row = int(bad[0]) + 1
        raise DataError(f"{where}: {name}, row {row} is {indptr[row]}, below the row before ({indptr[row - 1]})")
    if indptr[-1] != edges:
        raise DataError(f"{where}: {name} ends with {indptr[-1]}, but there are {edges} {noun}")


def check_range(indices: np.ndarray, vertices: int, where: str) -> None:
    """Check that all `indices` are below `vertices`, so that kernels stay inside their arrays."""
    if len(indices) and (indices.min() < 0 or indices.max() >= vertices):
        row = int(np.flatnonzero((indices < 0) | (indices >= vertices))[0])
        raise DataError(
            f"{where}: {names.INDICES}, row {row}: in-neighbour {indices[row]} is outside 0..{vertices - 1}"
        )


def check_relations(relation: np.ndarray, relations: int, where: str) -> None:
    """Check that all numbers of `relation` (unsigned[m]) are below `relations`."""
    if len(relation) and relation.max() >= relations:
        row = int(np.flatnonzero(relation >= relations)[0])
        raise DataError(f"{where}: {names.RELATION}, row {row}: {relation[row]} is outside 0..{relations - 1}")


@compiled
def _first_typed_fault(indptr, indices, relation, original_of, own, bounds, vertices, first):
    """Return (kind, row, position) of the first fault in lists ordered by (relation, original id), kind 0 for none.

    own: original ids of the rows; bounds int64[R, 4]: first and end of the original ids of sources, then destinations.
    """
    # Without a renumbering, ids are original ids.
    natural = len(original_of) == 0
    for v in range(len(indptr) - 1):
        before, group = np.int64(-1), np.int64(-1)
        for e in range(indptr[v] - indptr[0], indptr[v + 1] - indptr[0]):
            u, r = np.int64(indices[e]), np.int64(relation[e])
            if u < 0 or u >= vertices:
                return _RANGE, v, e
            if u == v + first:
                return _LOOP, v, e
            if r >= len(bounds):
                return _RELATION, v, e
            original = u if natural else np.int64(original_of[u])
            source = bounds[r, 0] <= original < bounds[r, 1]
            if not source or not bounds[r, 2] <= own[v] < bounds[r, 3]:
                return _ENDS, v, e
            if r == group and original == before:
                return _DUPLICATE, v, e
            if r < group or (r == group and original < before):
                return _ORDER, v, e
            before, group = original, r
    return 0, 0, 0


def check_lists(
    indptr: np.ndarray,
    indices: np.ndarray,
    original_of: np.ndarray | None,
    vertices: int,
    first: int,
    where: str,
    typed: tuple[GraphTypes, np.ndarray, np.ndarray] | None = None,
) -> None:
    """Check the in-neighbours of the vertices first, first + 1, ...: range, self-loops, duplicates, order.

    indptr: int64[k + 1], bounds in an array; `indices` are its elements indptr[0] to indptr[-1]. original_of:
    int64[vertices], original ids; None if ids are original ids. typed: of a typed graph the schema, the relations of
    the edges and the original ids int64[k] of the rows; ends of edges must be of the types of their relations.
    """
    # The kernel finds the first fault; this makes the message.
    known = np.empty(0, np.int64) if original_of is None else np.asarray(original_of)
    lists = np.asarray(indptr), np.asarray(indices)
    if typed is None:
        kind, v, e = _first_fault(*lists, known, vertices, first)
    else:
        types, relation, own = typed
        bounds = np.concatenate([types.bases[types.ends + i] for i in (0, 1)], axis=1)[:, [0, 2, 1, 3]]
        kind, v, e = _first_typed_fault(*lists, relation, known, np.asarray(own), bounds, vertices, first)
    if kind:
        row = e + int(indptr[0])
        of_edge = int(typed[1][e]) if typed else 0
        problem = {
            _RANGE: f"is outside 0..{vertices - 1}",
            _LOOP: "is the vertex itself: a self-loop",
            _DUPLICATE: "is there twice",
            _ORDER: f"is out of order: in-neighbours must ascend by {'relation, then ' * bool(typed)}original id",
            _RELATION: f"has relation {of_edge}, which is not in the schema",
            _ENDS: f"or the vertex is not of the type that relation {of_edge} joins",
        }[kind]
        raise DataError(
            f"{where}: {names.INDICES}, row {row}: in-neighbour {indices[e]} of vertex {v + first} {problem}"
        )


def check_features(features: Features, where: str, first: int = 0, name: str = names.FEATURES) -> None:
    """Check features; row 0 is row `first` of array `name`. The bounds of sparse rows must have been checked."""
    if isinstance(features, SparseFeatures):
        _check_entries(features, where, first)
    elif features.dtype.kind != "i":
        check_finite(features, where, first, name)


@compiled
def _first_entry_fault(indptr, indices, bits, width, exponent, sign):
    """Return (kind, row, position) of the first fault in the entries of sparse rows, kind 0 for none."""
    # Bits of a float: all exponent bits set is infinite or NaN, nothing but the sign is zero.
    for v in range(len(indptr) - 1):
        before = np.int64(-1)
        for e in range(indptr[v], indptr[v + 1]):
            column = np.int64(indices[e])
            if column < 0 or column >= width:
                return _RANGE, v, e
            if column <= before:
                return _ORDER, v, e
            before = column
            if bits[e] & exponent == exponent:
                return _NOT_FINITE, v, e
            if bits[e] & ~sign == 0:
                return _ZERO, v, e
    return 0, 0, 0


def _check_entries(features: SparseFeatures, where: str, first: int) -> None:
    """Check columns and values of sparse rows; row 0 is row `first` of all."""
    # Inspect values as bits: numba has no half precision.
    kind = np.dtype(f"u{features.data.itemsize}").type
    exponent, sign = (kind(0x7F800000), kind(1 << 31)) if kind is np.uint32 else (kind(0x7C00), kind(1 << 15))
    bits = np.asarray(features.data).view(kind)
    columns = np.asarray(features.indices)
    fault, v, e = _first_entry_fault(features.indptr, columns, bits, features.width, exponent, sign)
    if fault:
        problem = {
            _RANGE: f"names column {columns[e]}, outside 0..{features.width - 1}",
            _ORDER: f"names column {columns[e]} after {columns[e - 1]}; columns must ascend",
            _NOT_FINITE: f"column {columns[e]} is {features.data[e]}; features must be finite",
            _ZERO: f"column {columns[e]} is 0; sparse features keep no zeros",
        }[fault]
        raise DataError(f"{where}: {names.FEATURES}, row {first + v}, {problem}")


def check_finite(features: np.ndarray, where: str, first: int = 0, name: str = names.FEATURES) -> None:
    """Check that no feature is NaN or infinite; row 0 is row `first` of the whole array `name`."""
    for start, stop in row_ranges(len(features), features.nbytes // max(1, len(features))):
        block = features[start:stop]
        # bfloat16 is stored as bits: all exponent bits set means infinite or NaN.
        finite = (block & 0x7F80) != 0x7F80 if features.dtype == np.uint16 else np.isfinite(block)
        if not finite.all():
            row, column = (int(x[0]) for x in np.nonzero(~finite))
            value = features[start + row, column]
            if features.dtype == np.uint16:
                value = (np.array(value, np.uint32) << 16).view(np.float32)
            place = f"row {first + start + row}, column {column}"
            raise DataError(f"{where}: {name}, {place} is {value}; features must be finite")


def check_vertex_data(
    labels: np.ndarray | None, split: np.ndarray | None, classes: int, where: str, regression: bool = False
) -> None:
    """Check that labels are within their classes (or unlabelled), split codes known, and split members labelled.

    Targets of a `regression` must be finite, or NaN: unlabelled.
    """
    if labels is not None:
        _check_labels(labels, classes, where, regression)
    if split is None:
        return
    if len(bad := np.flatnonzero((split < names.NO_SPLIT) | (split > names.TEST))):
        raise DataError(f"{where}: {names.SPLIT}, row {bad[0]} is {split[bad[0]]}, expected 0, 1, 2 or 3")
    if labels is None:
        return
    unlabelled = labels == names.UNLABELLED if labels.ndim == 1 else np.isnan(labels).all(axis=1)
    if len(bad := np.flatnonzero(unlabelled & (split != names.NO_SPLIT))):
        name = names.SPLIT_NAMES[int(split[bad[0]])]
        raise DataError(f"{where}: {names.SPLIT}, row {bad[0]} is in the {name} split but has no label")


def _check_labels(labels: np.ndarray, classes: int, where: str, regression: bool) -> None:
    if regression:
        bad, allowed = np.isinf(labels), "NaN (unlabelled) or finite"
    elif labels.ndim == 1:
        bad, allowed = (labels < names.UNLABELLED) | (labels >= classes), f"-1 (unlabelled) or 0..{classes - 1}"
    else:
        bad, allowed = ~(np.isnan(labels) | ((labels >= 0) & (labels <= 1))), "NaN (unlabelled) or 0..1"
    if bad.any():
        at = tuple(int(x[0]) for x in np.nonzero(bad))
        column = f", column {at[1]}" if labels.ndim == 2 else ""
        raise DataError(f"{where}: {names.LABELS}, row {at[0]}{column} is {labels[at]}, expected {allowed}")
