"""Edges that a typed source holds back for validation and test, in the numbering of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from data_prep.edges.edge_sort import Adjacency
from data_prep.edges.typed_graph import GivenTriples, TypedEdges
from leapmpi.dataset.edge_splits import EdgeSplits
from leapmpi.dataset.graph_types import relation_dtype
from leapmpi.dataset.held_back_triples import triple_place
from leapmpi.dataset.topology import places_among
from leapmpi.errors import DataError
from leapmpi.system.jit import compiled


@compiled
def _visible(triples, indptr, indices, relation, original, out):
    """Mark in `out` bool[k] which triples [k, 3] of source, relation and destination are edges of the graph."""
    for i in range(len(triples)):
        u, r, v = triples[i]
        out[i] = triple_place(u, v, r, indptr, indices, relation, original) >= 0


def held_back(
    given: GivenTriples | None, edges: TypedEdges, adjacency: Adjacency, original_id: np.ndarray, where: str
) -> tuple[EdgeSplits | None, list[str]]:
    """Return the edges held back, and notes on those left out; `original_id` int64[n] of the vertices that stay.

    Self-loops, repeated triples, and those with an end outside the graph are left out. Raises DataError for one that is
    also an edge of the graph, or stands in both splits.
    """
    if given is None:
        return None, []
    found: dict[str, Any] = {}
    notes, before = [], np.empty((0, 3), np.int64)
    for name, triples in (("val", given.val), ("test", given.test)):
        kept, left = _numbered(triples, edges, original_id, f"{where}: {name} edges")
        notes += [f"{name} edges left out: {left:,} self-loops, repeats, or outside the graph"] if left else []
        # An edge that training sees, or that is in both splits, would make scores meaningless.
        seen = np.zeros(len(kept), bool)
        lists = adjacency.indptr, adjacency.indices, adjacency.data.relation
        _visible(kept, *map(np.asarray, lists), original_id, seen)
        twice = np.concatenate([before, kept])
        if seen.any() or len(np.unique(twice, axis=0)) < len(twice):
            what = "are also edges for training" if seen.any() else "are also validation edges"
            raise DataError(f"{where}: some {name} edges {what}; take them out of one of the two")
        before = kept
        found[name] = np.ascontiguousarray(kept[:, [0, 2]])
        found[f"{name}_relation"] = kept[:, 1].astype(relation_dtype(len(edges.relations)))
    return EdgeSplits(**found), notes


def _numbered(triples: np.ndarray, edges: TypedEdges, original_id: np.ndarray, where: str) -> tuple[np.ndarray, int]:
    """Return `triples` int64[k, 3] by rows of the graph, in the order of files, and how many are left out."""
    numbers = edges.numbers_of(triples, where)
    rows = places_among(numbers[:, [0, 2]], original_id)
    there = (rows >= 0).all(axis=1) & (rows[:, 0] != rows[:, 1])
    ordered = np.unique(np.column_stack([rows[:, 1], numbers[:, 1], rows[:, 0]])[there], axis=0)
    return np.ascontiguousarray(ordered[:, ::-1]), len(triples) - len(ordered)
