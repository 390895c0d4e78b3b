"""The graph of some vertices and the edges between them: what a level of a hierarchy partitions further."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from data_prep.mapped_arrays import mapped, temporary_file
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.system.jit import compiled

_ENTRIES = 1 << 20
"""Entries of rows that are copied at a time."""


def induced_subgraph(graph: Graph, members: np.ndarray) -> Graph:
    """Return the graph of `members` (ascending ids) and the edges between them, without features and labels.

    Its edges are mapped from a temporary file.
    """
    # Number the members from 0 on; all other vertices are -1.
    number = np.full(graph.vertices, -1, names.index_dtype(graph.vertices))
    number[members] = np.arange(len(members))

    # Copy the rows of the members, without the neighbours that are not members.
    indptr = np.zeros(len(members) + 1, np.int64)
    outer_indptr = np.asarray(graph.indptr)
    outer_indices = np.asarray(graph.indices)
    file = temporary_file()
    for low, high in _row_ranges(outer_indptr, members):
        entries = int((outer_indptr[members[low:high] + 1] - outer_indptr[members[low:high]]).sum())
        inner = np.empty(entries, number.dtype)
        kept = _inner_rows(outer_indptr, outer_indices, members[low:high], number, indptr[low : high + 1], inner)
        inner[:kept].tofile(file)

    split = None if graph.split is None else np.asarray(graph.split)[members]
    indices = mapped(file, number.dtype, int(indptr[-1]))
    return Graph(indptr, indices, split=split, original_id=np.asarray(graph.original_id)[members])


def _row_ranges(indptr: np.ndarray, members: np.ndarray) -> Iterator[tuple[int, int]]:
    """Return ranges of `members` with about _ENTRIES entries each, one row at least."""
    low = 0
    while low < len(members):
        ahead = members[low : low + _ENTRIES]
        ends = np.cumsum(indptr[ahead + 1] - indptr[ahead])
        high = low + max(1, int(np.searchsorted(ends, _ENTRIES, side="right")))
        yield low, high
        low = high


@compiled
def _inner_rows(indptr, indices, members, number, inner_indptr, inner):
    """Write the edges between members to `inner`, and the ends of their rows to `inner_indptr`; returns their count."""
    total = 0
    for i in range(len(members)):
        for e in range(indptr[members[i]], indptr[members[i] + 1]):
            u = number[indices[e]]
            if u >= 0:
                inner[total] = u
                total += 1
        inner_indptr[i + 1] = inner_indptr[0] + total
    return total
