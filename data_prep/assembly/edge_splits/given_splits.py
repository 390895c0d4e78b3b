"""Validation and test edges that a source gives: taken out of the topology, where they stand in it, and listed.

Of an undirected graph both directions go, and one is listed. Loops, edges that are given twice, and edges with an end
that is not in the graph are left out, with a note.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from data_prep.assembly.edge_splits.split_edges import check_unsplit, hold_back
from data_prep.edges.edge_sort import check_ids
from data_prep.edges.raw_graph import GivenEdges
from leapmpi.dataset.edge_splits import EdgeSplits, both_ways
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.topology import places_among
from leapmpi.errors import DataError

_CODES = {"val": names.VAL, "test": names.TEST}


def hold_back_given(
    graph: Graph, given: GivenEdges, vertices: int, progress: Callable[[int], object] | None = None
) -> tuple[Graph, list[str]]:
    """Move the edges of `given` to the `edge_splits` of `graph`; also return notes on edges left out.

    vertices: those of the source, whose numbers `original_id` holds. Given negatives are kept in their order. Edges
    that are not in the topology are listed too, unlabelled. Raises DataError for ids out of range, for an edge in both
    splits, and where no training edge is left.
    """
    check_unsplit(graph, given.held)
    # The source's ids by the numbers of the cleaned graph.
    numbers = np.full(vertices, -1, np.int64)
    numbers[graph.original_id] = np.arange(graph.vertices)
    symmetric, notes = both_ways(graph.attributes), []
    listed = {}
    for name in _CODES:
        listed[name], left_out = _listed(_numbered(getattr(given, name), numbers, given.origin), symmetric)
        notes += [f"{name} edges left out (loops, twice, or with an end left out): {left_out:,}"] if left_out else []
    known = {name: np.sort(_code(_unordered(edges), graph.vertices)) for name, edges in listed.items()}
    if len(np.intersect1d(*known.values())):
        raise DataError(f"{given.origin}: an edge, or its reverse, is in both validation and test")

    def coded(start: int, first: int, indptr: np.ndarray, indices: np.ndarray, codes: np.ndarray) -> None:
        destination = np.repeat(np.arange(start, start + len(indptr) - 1), np.diff(indptr))
        edges = np.stack([indices.astype(np.int64), destination], axis=1)
        # Both directions leave the topology, but only the listed one is held back.
        plain, pair = _code(edges, graph.vertices), _code(_unordered(edges), graph.vertices)
        codes[:] = names.TRAIN
        for name, code in _CODES.items():
            codes[places_among(pair, known[name]) >= 0] = names.NO_SPLIT
            codes[places_among(plain, np.sort(_code(listed[name], graph.vertices))) >= 0] = code

    held = hold_back(graph, coded, given.held, given.origin, progress)
    assert held.edge_splits is not None, "it has just been split"
    splits = held.edge_splits if given.held == names.HELD_LABELS else _all_listed(held.edge_splits, listed, graph)
    negatives = {}
    for name, pairs in given.negatives.items():
        found = _numbered(pairs, numbers, given.origin)
        whole = found[(found >= 0).all(axis=1) & (found[:, 0] != found[:, 1])]
        notes += [f"{name} negatives left out: {len(found) - len(whole):,}"] if len(whole) < len(found) else []
        negatives[f"{name}_negatives"] = whole
    return replace(held, edge_splits=replace(splits, **negatives)), notes


def _numbered(edges: np.ndarray, numbers: np.ndarray, where: str) -> np.ndarray:
    """Renumber `edges` [2, k] by the numbers of the graph, -1 for a vertex that it lacks: int64[k, 2]."""
    check_ids(edges, len(numbers), where)
    return numbers[np.asarray(edges, np.int64).T]


def _listed(edges: np.ndarray, symmetric: bool) -> tuple[np.ndarray, int]:
    """List each edge once, ascending by destination, then source; and count those left out."""
    whole = edges[(edges >= 0).all(axis=1) & (edges[:, 0] != edges[:, 1])]
    if symmetric:
        _, first = np.unique(_unordered(whole), axis=0, return_index=True)
        whole = whole[np.sort(first)]
    found = np.unique(whole[:, ::-1], axis=0)[:, ::-1]
    return np.ascontiguousarray(found), len(edges) - len(found)


def _unordered(edges: np.ndarray) -> np.ndarray:
    return np.sort(edges, axis=1)


def _code(edges: np.ndarray, vertices: int) -> np.ndarray:
    """Return one number per pair, below 2**63 for up to 2**31 vertices."""
    return edges[:, 0] * np.int64(vertices) + edges[:, 1]


def _all_listed(found: EdgeSplits, listed: dict[str, np.ndarray], graph: Graph) -> EdgeSplits:
    """Join `found`, those of `listed` that were in the topology, with the others, which are unlabelled."""
    fields = {}
    for name, edges in listed.items():
        fields[name] = edges
        there = _code(np.asarray(getattr(found, name)), graph.vertices)
        place = places_among(_code(edges, graph.vertices), there, np.argsort(there))
        inside = place >= 0
        place = place[inside]
        if (labels := getattr(found, f"{name}_labels")) is not None:
            every = np.full(len(edges), names.UNLABELLED, np.int32)
            every[inside] = np.asarray(labels)[place]
            fields[f"{name}_labels"] = every
        if (time := getattr(found, f"{name}_time")) is not None:
            fields[f"{name}_time"] = np.asarray(time)[place] if inside.all() else None
    # Times of some edges alone would not tell which of the others are later.
    if any(fields.get(f"{name}_time") is None for name in listed):
        fields |= {f"{name}_time": None for name in listed}
    return replace(found, **fields)
