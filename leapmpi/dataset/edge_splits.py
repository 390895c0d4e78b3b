"""EdgeSplits: edges held back from the topology, on which link prediction is validated and tested.

Edges of the training split are the topology itself, so that no layer ever reads an edge that is to be predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from leapmpi.dataset.content_hash import FACTORS
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.hdf5.reader import map_array, required
from leapmpi.errors import DataError
from leapmpi.system.counter_rng import mix
from leapmpi.system.jit import compiled

COUNTS = {name: f"{name}_edges" for name in (names.SPLIT_NAMES[names.VAL], names.SPLIT_NAMES[names.TEST])}
"""Root attribute with the number of edges of each split; a file without edge splits has none of them."""


@dataclass(frozen=True)
class EdgeSplits:
    """Edges of each split: int64[k, 2] of sources and destinations, ascending by destination's, then source's
    original id."""

    val: np.ndarray
    test: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by their names in files."""
        return {f"{names.EDGE_SPLITS}/{name}": getattr(self, name) for name in COUNTS}

    def counts(self) -> Attributes:
        """The attributes that follow from the arrays."""
        return {attribute: len(getattr(self, name)) for name, attribute in COUNTS.items()}

    def renamed(self, name_of: np.ndarray) -> EdgeSplits:
        """The same edges with vertex v called name_of[v] (integers[n])."""
        return EdgeSplits(*(np.asarray(name_of[np.asarray(each)], np.int64) for each in (self.val, self.test)))


def map_edge_splits(file: h5py.File, path: Path, found: Attributes) -> EdgeSplits | None:
    """The edge splits in `file`, mapped, or None; `found` are its root attributes. Raises DataError."""
    if not any(attribute in found for attribute in COUNTS.values()):
        return None
    sizes = {name: required(found, attribute, int, path) for name, attribute in COUNTS.items()}
    arrays = [map_array(file, path, f"{names.EDGE_SPLITS}/{name}", ("<i8",), (k, 2)) for name, k in sizes.items()]
    return EdgeSplits(*arrays)


@compiled
def _sum_lanes(edges, code, factor_a, factor_b):
    total_a, total_b = np.uint64(0), np.uint64(0)
    for e in range(len(edges)):
        for lane in range(2):
            factor = factor_a if lane == 0 else factor_b
            h = mix(np.uint64(code) ^ factor)
            for end in range(2):
                h = (h ^ np.uint64(edges[e, end])) * factor
                h = h ^ (h >> np.uint64(32))
            if lane == 0:
                total_a += mix(h)
            else:
                total_b += mix(h)
    return total_a, total_b


def split_lanes(splits: EdgeSplits | None, original_of: np.ndarray | None) -> np.ndarray:
    """What the edges add to the content's lanes (content_hash.py): uint64[2], 0 without edge splits.

    `original_of` integers[n] are the original ids; None where edges name them already.
    """
    lanes = np.zeros(2, np.uint64)
    if splits is None:
        return lanes
    factors = [np.uint64(factor) for factor in FACTORS]
    with np.errstate(over="ignore"):
        for code, edges in ((names.VAL, splits.val), (names.TEST, splits.test)):
            edges = np.asarray(edges)
            named = edges if original_of is None else np.asarray(original_of)[edges]
            lanes += np.array(_sum_lanes(named.astype(np.int64), code, *factors), np.uint64)
    return lanes


def check_edge_splits(splits: EdgeSplits | None, rows: Any, original_of: np.ndarray, where: str) -> None:
    """Check ranges and order, and that no edge, in either direction, stands in two splits or in the topology.

    `rows` is anything with indptr int64[n+1] and indices integers[m]: the in-neighbours of all vertices, in the
    numbering of the edges. Raises DataError naming array and row of the first fault.
    """
    if splits is None:
        return
    seen: Mapping[str, np.ndarray] = splits.arrays()
    for name, edges in seen.items():
        check_ends(edges, len(original_of), where, name)
        ends = original_of[np.asarray(edges)]
        falls = (ends[1:, 1] < ends[:-1, 1]) | ((ends[1:, 1] == ends[:-1, 1]) & (ends[1:, 0] <= ends[:-1, 0]))
        if len(bad := np.flatnonzero(falls)):
            raise DataError(f"{where}: {name}, row {bad[0] + 1} does not ascend by destination and source")
    check_unseen(splits, rows, original_of, where)
    pairs = [np.unique(np.sort(np.asarray(edges), axis=1), axis=0) for edges in seen.values()]
    both = np.concatenate(pairs)
    if len(np.unique(both, axis=0)) < len(both):
        raise DataError(f"{where}: an edge, or its reverse, is in both {' and '.join(seen)}; split the edges again")


def check_unseen(splits: EdgeSplits | None, rows: Any, original_of: np.ndarray, where: str) -> None:
    """Raise DataError where an edge, or its reverse, is one of the topology; arguments are as above."""
    for name, edges in splits.arrays().items() if splits else ():
        arrays = (np.asarray(each) for each in (edges, rows.indptr, rows.indices, original_of))
        if (row := int(_first_in(*arrays))) >= 0:
            source, destination = original_of[np.asarray(edges)[row]].tolist()
            raise DataError(
                f"{where}: {name}, row {row}, the edge {source} -> {destination} (original ids) or its reverse is also "
                "an edge of the topology, so that training would see it; split the edges again"
            )


def both_ways(attributes: Attributes) -> bool:
    """Whether each edge of the graph with these root attributes has its reverse; not where nothing is said."""
    return attributes.get("directed") is False


def check_ends(edges: np.ndarray, vertices: int, where: str, name: str) -> None:
    """Raise DataError where an end lies outside the graph, or an edge ends where it starts."""
    edges = np.asarray(edges)
    if len(bad := np.flatnonzero((edges < 0).any(axis=1) | (edges >= vertices).any(axis=1))):
        raise DataError(f"{where}: {name}, row {bad[0]} names a vertex outside 0..{vertices - 1}; make it again")
    if len(bad := np.flatnonzero(edges[:, 0] == edges[:, 1])):
        raise DataError(f"{where}: {name}, row {bad[0]} is an edge from a vertex to itself; make it again")


def check_apart(splits: EdgeSplits | None, rows: Any, first: int, original_of: np.ndarray, where: str) -> None:
    """Raise DataError where an edge held back, or its reverse, is one of a part's, whose vertices begin at `first`.

    `rows` holds the part's indptr and indices; `original_of` int64[n] those of all vertices.
    """
    if splits is None:
        return
    end = first + len(rows.indptr) - 1
    for name, edges in splits.arrays().items():
        for direction in (np.asarray(edges), np.asarray(edges)[:, ::-1]):
            inside = np.flatnonzero((direction[:, 1] >= first) & (direction[:, 1] < end))
            found = _present(direction[inside], np.asarray(rows.indptr), np.asarray(rows.indices), first, original_of)
            if len(bad := inside[found]):
                raise DataError(
                    f"{where}: {names.INDICES} has the edge of {name}, row {bad[0]}, or its reverse, so that training "
                    "would see it; partition again"
                )


@compiled
def edge_place(source, destination, indptr, indices, original):
    """Where `source` stands in `indices` as an in-neighbour of `destination`, -1 if nowhere; lists ascend by
    `original` id."""
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
def _present(edges, indptr, indices, first, original):
    """bool[k]: whether the part's lists of in-neighbours have each of `edges`; its first vertex is `first`."""
    found = np.zeros(len(edges), np.bool_)
    for e in range(len(edges)):
        found[e] = edge_place(edges[e, 0], edges[e, 1] - first, indptr, indices, original) >= 0
    return found


@compiled
def has_edge(source, destination, indptr, indices, original):
    """Whether `source` is an in-neighbour of `destination`; lists ascend by `original` id."""
    return edge_place(source, destination, indptr, indices, original) >= 0


@compiled
def _first_in(edges, indptr, indices, original):
    for e in range(len(edges)):
        u, v = edges[e, 0], edges[e, 1]
        if has_edge(u, v, indptr, indices, original) or has_edge(v, u, indptr, indices, original):
            return e
    return -1
