"""Checks of the edges held back from a typed graph: their types, their order, and that the topology lacks them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from leapmpi.dataset.edge_splits import EdgeSplits, check_held_back
from leapmpi.dataset.graph import VertexRows
from leapmpi.dataset.graph_types import GraphTypes
from leapmpi.dataset.hdf5 import names
from leapmpi.errors import DataError
from leapmpi.system.jit import compiled


@compiled
def triple_place(source, destination, wanted, indptr, indices, relation, original):
    """Return the position of `source` in the list of `destination` under relation `wanted`, -1 if absent.

    Lists ascend by relation, then by `original` id.
    """
    low, high = indptr[destination], indptr[destination + 1]
    name = original[source]
    while low < high:
        middle = (low + high) // 2
        r = np.int64(relation[middle])
        if r < wanted or (r == wanted and original[indices[middle]] < name):
            low = middle + 1
        else:
            high = middle
    there = low < indptr[destination + 1] and np.int64(relation[low]) == wanted
    return low if there and np.int64(indices[low]) == source else -1


@compiled
def _first_visible(edges, wanted, first, rows, indptr, indices, relation, original):
    """Return the row of the first of `edges` in lists of the `rows` vertices from `first` on, -1 if there is none."""
    for e in range(len(edges)):
        v = edges[e, 1] - first
        if wanted[e] < 0 or v < 0 or v >= rows:
            continue
        if triple_place(edges[e, 0], v, wanted[e], indptr, indices, relation, original) >= 0:
            return e
    return -1


def check_triples(
    splits: EdgeSplits | None, rows: VertexRows, types: GraphTypes, original_of: np.ndarray, where: str
) -> None:
    """Check types, order and distinctness of edges held back from a typed graph. Raises DataError for the first fault.

    original_of: int64[n], the original ids of all vertices.
    """
    if splits is None:
        return
    check_held_back(splits, len(original_of), rows.edge_data.classes, where)
    triples = []
    for name, edges in splits.arrays().items():
        if splits.held != names.HELD_EDGES:
            raise DataError(f"{where}: {names.HELD_BACK} is {splits.held!r}; a typed graph holds edges back")
        ends, relation = original_of[np.asarray(edges)], _relation(splits, name).astype(np.int64)
        if len(bad := np.flatnonzero(relation >= len(types.relations))):
            raise DataError(f"{where}: {name}_relation, row {bad[0]} is {relation[bad[0]]}, which is not in the schema")
        # Original ids tell the type of a vertex: each type has a range of them.
        wanted = types.ends[relation]
        wrong = (ends < types.bases[wanted]) | (ends >= types.bases[wanted + 1])
        if len(bad := np.flatnonzero(wrong.any(axis=1))):
            raise DataError(
                f"{where}: {name}, row {bad[0]} is not of the types of relation {types.relations[relation[bad[0]]]}"
            )
        triples.append(np.column_stack([ends[:, 1], relation, ends[:, 0]]))
        if row := next((i for i, (a, b) in enumerate(pairwise(triples[-1].tolist()), 1) if b <= a), None):
            raise DataError(f"{where}: {name}, row {row} does not ascend by destination, relation and source")
    # Order was checked within each split; between two splits an edge may still repeat.
    both = np.concatenate(triples)
    if len(np.unique(both, axis=0)) < len(both):
        raise DataError(f"{where}: an edge is in both {' and '.join(splits.arrays())}; make it again")


def check_triples_apart(
    splits: EdgeSplits | None,
    lists: Sequence[np.ndarray | None],
    types: GraphTypes,
    first: int,
    original_of: np.ndarray,
    where: str,
) -> None:
    """Raise DataError if the `lists` of vertices from `first` on have an edge held back or its reverse.

    lists: indptr, indices and relations. The reverse of an edge is that of the reverse relation; any other edge between
    the same vertices may stay.
    """
    if splits is None or any(each is None for each in lists):
        return
    arrays = [np.asarray(each) for each in (*lists, original_of)]
    for name, edges in splits.arrays().items():
        relation = _relation(splits, name).astype(np.int64)
        for direction, wanted in (
            (np.asarray(edges), relation),
            (np.asarray(edges)[:, ::-1], types.reverses[relation]),
        ):
            rows = len(arrays[0]) - 1
            row = _first_visible(np.ascontiguousarray(direction), wanted, first, rows, *arrays)
            if row >= 0:
                raise DataError(
                    f"{where}: {names.INDICES} has the edge of {name}, row {row}, or its reverse, so that training "
                    "would see it; make it again"
                )


def _relation(splits: EdgeSplits, name: str) -> np.ndarray:
    """Return the relations of the edges of the array `name`. Raises DataError if there are none."""
    found = splits.relation_arrays().get(f"{name}_relation")
    if found is None:
        raise DataError(f"{name}: edges held back from a typed graph need relations")
    return np.asarray(found)
