"""Edges held back from the topology, for validation and test of link prediction.

Edges of the training split are the topology itself, so that no layer ever reads an edge that is to be predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.dataset.content_hash import row_lanes
from leapmpi.dataset.edge_data import DTYPES, check_edge_labels, check_edge_values
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.hdf5.opened_file import OpenedFile
from leapmpi.dataset.hdf5.reader import map_array, required
from leapmpi.errors import DataError
from leapmpi.system.jit import compiled

COUNTS = {name: f"{name}_edges" for name in (names.SPLIT_NAMES[names.VAL], names.SPLIT_NAMES[names.TEST])}
"""Root attributes with the number of edges of each split; absent from files without edge splits."""

_LABELS, _NEGATIVES, _TIMES, _RELATIONS = 16, 32, 48, 64
"""Tags of labels, negatives, times and relations in the content's hash, added to the code of a split."""


@dataclass(frozen=True)
class EdgeSplits:
    """Edges of each split: int64[k, 2] of sources and destinations, ascending by destination's, then source's
    original id.

    val_labels, test_labels: int32[k], those of the edges, -1 unlabelled; None where edges have no labels.
    val_time, test_time: int64[k] or float64[k], times of the edges, or None.
    val_negatives, test_negatives: int64[j, 2], pairs without an edge that the source gives to score against, or None.
    held: what the topology lacks of these edges: the edges themselves, or their labels alone.
    val_relation, test_relation: uint8[k] or uint16[k], relations of the edges of a typed graph, or None; edges then
    ascend by destination, relation and source, and their reverses are those of the reverse relation alone.
    """

    val: np.ndarray
    test: np.ndarray
    val_labels: np.ndarray | None = None
    test_labels: np.ndarray | None = None
    val_negatives: np.ndarray | None = None
    test_negatives: np.ndarray | None = None
    held: str = names.HELD_EDGES
    val_time: np.ndarray | None = None
    test_time: np.ndarray | None = None
    val_relation: np.ndarray | None = None
    test_relation: np.ndarray | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the edges by the names of their arrays in files."""
        return {f"{names.EDGE_SPLITS}/{name}": getattr(self, name) for name in COUNTS}

    def label_arrays(self) -> dict[str, np.ndarray]:
        """Return the labels by the names of their arrays in files."""
        return self._given("labels")

    def time_arrays(self) -> dict[str, np.ndarray]:
        """Return the times by the names of their arrays in files."""
        return self._given("time")

    def relation_arrays(self) -> dict[str, np.ndarray]:
        """Return the relations by the names of their arrays in files."""
        return self._given("relation")

    def carried_arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays with a row per held-back edge that name no vertices."""
        return {**self.label_arrays(), **self.time_arrays(), **self.relation_arrays()}

    def pairs(self) -> dict[str, np.ndarray]:
        """Return all arrays that name vertices."""
        return {**self.arrays(), **self._given("negatives")}

    def file_arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays by their names in files."""
        return {**self.pairs(), **self.carried_arrays()}

    def _given(self, what: str) -> dict[str, np.ndarray]:
        found = {f"{names.EDGE_SPLITS}/{name}_{what}": getattr(self, f"{name}_{what}") for name in COUNTS}
        return {name: array for name, array in found.items() if array is not None}

    def counts(self) -> Attributes:
        """Return the attributes that follow from the arrays."""
        found: Attributes = {attribute: len(getattr(self, name)) for name, attribute in COUNTS.items()}
        if self.held != names.HELD_EDGES:
            found[names.HELD_BACK] = self.held
        if self.time_arrays():
            found[names.HAS_SPLIT_TIME] = True
        for attribute in names.NEGATIVE_COUNTS:
            if (array := getattr(self, attribute)) is not None:
                found[attribute] = len(array)
        return found


def map_edge_splits(file: OpenedFile, path: Path, found: Attributes) -> EdgeSplits | None:
    """Map the edge splits in `file`, or return None; `found` are its root attributes. Raises DataError."""
    if not any(attribute in found for attribute in COUNTS.values()):
        return None
    held = found.get(names.HELD_BACK, names.HELD_EDGES)
    if held not in (names.HELD_EDGES, names.HELD_LABELS):
        raise DataError(f"{path}: attribute {names.HELD_BACK} is {held!r}; make the file again")

    # Edges and their labels, as many of each.
    sizes = {name: required(found, attribute, int, path) for name, attribute in COUNTS.items()}
    place = f"{names.EDGE_SPLITS}/"
    fields = {name: map_array(file, place + name, ("<i8",), (k, 2)) for name, k in sizes.items()}
    if names.EDGE_CLASSES in found:
        fields |= {
            f"{name}_labels": map_array(file, f"{place}{name}_labels", ("<i4",), (k,)) for name, k in sizes.items()
        }
    if found.get(names.HAS_SPLIT_TIME, False):
        # Times have the types of edge times, whichever of them the file has.
        kinds = DTYPES[names.EDGE_TIME]
        fields |= {f"{name}_time": map_array(file, f"{place}{name}_time", kinds, (k,)) for name, k in sizes.items()}
    if names.RELATIONS in found:
        kinds = DTYPES[names.RELATION]
        fields |= {
            f"{name}_relation": map_array(file, f"{place}{name}_relation", kinds, (k,)) for name, k in sizes.items()
        }
    # Given negatives are optional by split.
    for name in names.NEGATIVE_COUNTS:
        if name in found:
            fields[name] = map_array(file, place + name, ("<i8",), (required(found, name, int, path), 2))
    return EdgeSplits(**fields, held=str(held))


def split_lanes(splits: EdgeSplits | None, original_of: np.ndarray | None) -> np.ndarray:
    """Return the contribution of the edges to the content's lanes (content_hash.py): uint64[2], 0 without splits.

    `original_of` integers[n] are the original ids; None if edges use them already.
    """
    lanes = np.zeros(2, np.uint64)
    if splits is None:
        return lanes
    # Lanes add up, so each kind of data has a code of its own: equal rows of two kinds must differ.
    for code, name in ((names.VAL, "val"), (names.TEST, "test")):
        edges = _named(getattr(splits, name), original_of)
        lanes = lanes + row_lanes(code, edges)
        if (labels := getattr(splits, f"{name}_labels")) is not None:
            lanes = lanes + row_lanes(_LABELS + code, np.column_stack([edges, np.asarray(labels)]))
        if (time := getattr(splits, f"{name}_time")) is not None:
            lanes = lanes + row_lanes(_TIMES + code, np.column_stack([edges, np.asarray(time).view(np.int64)]))
        if (relation := getattr(splits, f"{name}_relation")) is not None:
            lanes = lanes + row_lanes(_RELATIONS + code, np.column_stack([edges, np.asarray(relation)]))
        if (negatives := getattr(splits, f"{name}_negatives")) is not None:
            lanes = lanes + row_lanes(_NEGATIVES + code, _named(negatives, original_of))
    return lanes


def _named(edges: np.ndarray, original_of: np.ndarray | None) -> np.ndarray:
    """Return `edges` by original ids."""
    edges = np.asarray(edges)
    return edges if original_of is None else np.asarray(original_of)[edges]


def check_held_back(splits: EdgeSplits, vertices: int, classes: int, where: str) -> None:
    """Check that pairs name vertices, and labels classes of the `classes` that edges have. Raises DataError."""
    for name, edges in splits.pairs().items():
        check_ends(edges, vertices, where, name)
    for name, labels in splits.label_arrays().items():
        check_edge_labels(name, np.asarray(labels), 0, where, classes)
    for name, time in splits.time_arrays().items():
        check_edge_values(name, np.asarray(time), 0, where)


def check_edge_splits(splits: EdgeSplits | None, rows: Any, original_of: np.ndarray, where: str) -> None:
    """Check ranges and order, and that no edge, in either direction, is in two splits or visible in the topology.

    `rows` holds the in-neighbours of all vertices (a VertexRows), in the numbering of the edges. Raises DataError
    naming array and row of the first fault.
    """
    if splits is None:
        return
    seen: Mapping[str, np.ndarray] = splits.arrays()
    check_held_back(splits, len(original_of), rows.edge_data.classes, where)
    for name, edges in seen.items():
        ends = original_of[np.asarray(edges)]
        falls = (ends[1:, 1] < ends[:-1, 1]) | ((ends[1:, 1] == ends[:-1, 1]) & (ends[1:, 0] <= ends[:-1, 0]))
        if len(bad := np.flatnonzero(falls)):
            raise DataError(f"{where}: {name}, row {bad[0] + 1} does not ascend by destination and source")
    check_unseen(splits, rows, original_of, where)
    if splits.held == names.HELD_LABELS:
        check_apart(splits, rows, 0, original_of, where)
    # Ends are sorted, so that an edge and its reverse are one pair: either would give the other away.
    pairs = [np.unique(np.sort(np.asarray(edges), axis=1), axis=0) for edges in seen.values()]
    both = np.concatenate(pairs)
    if len(np.unique(both, axis=0)) < len(both):
        raise DataError(f"{where}: an edge, or its reverse, is in both {' and '.join(seen)}; split the edges again")


def check_unseen(splits: EdgeSplits | None, rows: Any, original_of: np.ndarray, where: str) -> None:
    """Raise DataError if a held-back edge, or its reverse, is in the whole topology `rows`."""
    for name, edges in splits.arrays().items() if splits and splits.held == names.HELD_EDGES else ():
        arrays = (np.asarray(each) for each in (edges, rows.indptr, rows.indices, original_of))
        if (row := int(_first_in(*arrays))) >= 0:
            source, destination = original_of[np.asarray(edges)[row]].tolist()
            raise DataError(
                f"{where}: {name}, row {row}, the edge {source} -> {destination} (original ids) or its reverse is also "
                "an edge of the topology, so that training would see it; split the edges again"
            )


def both_ways(attributes: Attributes) -> bool:
    """Return whether each edge of the graph with these root attributes has its reverse; False if unknown."""
    return attributes.get("directed") is False


def check_ends(edges: np.ndarray, vertices: int, where: str, name: str) -> None:
    """Raise DataError for an end outside the graph, or a self-loop."""
    edges = np.asarray(edges)
    if len(bad := np.flatnonzero((edges < 0).any(axis=1) | (edges >= vertices).any(axis=1))):
        raise DataError(f"{where}: {name}, row {bad[0]} names a vertex outside 0..{vertices - 1}; make it again")
    if len(bad := np.flatnonzero(edges[:, 0] == edges[:, 1])):
        raise DataError(f"{where}: {name}, row {bad[0]} is an edge from a vertex to itself; make it again")


def check_apart(splits: EdgeSplits | None, rows: Any, first: int, original_of: np.ndarray, where: str) -> None:
    """Raise DataError if a part, whose vertices begin at `first`, has a held-back edge or its reverse.

    If labels are held back instead, it must have the edges, and none of the labels. `rows` is the part, a VertexRows;
    `original_of` int64[n] are the original ids of all vertices.
    """
    if splits is None:
        return
    if splits.held == names.HELD_LABELS:
        _check_labels_apart(splits, rows, first, original_of, where)
        return
    end = first + len(rows.indptr) - 1
    for name, edges in splits.arrays().items():
        for direction in (np.asarray(edges), np.asarray(edges)[:, ::-1]):
            inside = np.flatnonzero((direction[:, 1] >= first) & (direction[:, 1] < end))
            found = _places(direction[inside], np.asarray(rows.indptr), np.asarray(rows.indices), first, original_of)
            if len(bad := inside[found >= 0]):
                raise DataError(
                    f"{where}: {names.INDICES} has the edge of {name}, row {bad[0]}, or its reverse, so that training "
                    "would see it; partition again"
                )


def _check_labels_apart(splits: EdgeSplits, rows: Any, first: int, original_of: np.ndarray, where: str) -> None:
    end, labels = first + len(rows.indptr) - 1, rows.edge_data.labels
    for name, edges in splits.arrays().items():
        for listed, direction in ((True, np.asarray(edges)), (False, np.asarray(edges)[:, ::-1])):
            inside = np.flatnonzero((direction[:, 1] >= first) & (direction[:, 1] < end))
            found = _places(direction[inside], np.asarray(rows.indptr), np.asarray(rows.indices), first, original_of)
            if listed and len(bad := inside[found < 0]):
                raise DataError(f"{where}: {names.INDICES} lacks the edge of {name}, row {bad[0]}; make it again")
            seen = inside[found >= 0]
            if labels is not None and len(bad := seen[np.asarray(labels[found[found >= 0]]) != names.UNLABELLED]):
                raise DataError(
                    f"{where}: {names.EDGE_LABELS} has the label of the edge of {name}, row {bad[0]}, or of its "
                    "reverse, so that training would see it; make it again"
                )


@compiled
def edge_place(source, destination, indptr, indices, original):
    """Return the position of `source` in the list of `destination`, -1 if absent; lists ascend by `original` id."""
    low, high = indptr[destination], indptr[destination + 1]
    wanted = original[source]
    while low < high:
        middle = (low + high) // 2
        if original[indices[middle]] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < indptr[destination + 1] and np.int64(indices[low]) == source else -1


@compiled
def _places(edges, indptr, indices, first, original):
    """Return the position of each of `edges` in the part's lists, or -1: int64[k]; its first vertex is `first`."""
    found = np.empty(len(edges), np.int64)
    for e in range(len(edges)):
        found[e] = edge_place(edges[e, 0], edges[e, 1] - first, indptr, indices, original)
    return found


@compiled
def has_edge(source, destination, indptr, indices, original):
    """Return whether `source` is an in-neighbour of `destination`; lists ascend by `original` id."""
    return edge_place(source, destination, indptr, indices, original) >= 0


@compiled
def _first_in(edges, indptr, indices, original):
    for e in range(len(edges)):
        u, v = edges[e, 0], edges[e, 1]
        if has_edge(u, v, indptr, indices, original) or has_edge(v, u, indptr, indices, original):
            return e
    return -1
