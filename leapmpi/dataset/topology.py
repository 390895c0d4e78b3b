"""Topology: who is an in-neighbour of whom, in the numbering the job works with.

Lists of in-neighbours are ordered by original id, whatever the numbering, so that a draw from a list
names the same vertices on every partition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.dataset.graph import Graph


@dataclass(frozen=True)
class Topology:
    """In-neighbours of n vertices as compressed sparse rows.

    indptr: int64[n+1]; indices: int32[m], or int64[m] from 2**31 vertices on; original_id: int64[n], the row of
    each vertex in the source. The in-neighbours of v are indices[indptr[v]:indptr[v+1]], by ascending original id.
    """

    indptr: np.ndarray
    indices: np.ndarray
    original_id: np.ndarray

    @property
    def vertices(self) -> int:
        """The number of vertices."""
        return len(self.original_id)

    @property
    def edges(self) -> int:
        """The number of directed edges."""
        return len(self.indices)

    def degree(self, ids: np.ndarray) -> np.ndarray:
        """In-degrees int64 of the vertices `ids` in the whole graph."""
        return self.indptr[ids + 1] - self.indptr[ids]


def from_graph(graph: Graph) -> Topology:
    """The topology of an unpartitioned graph, in its own numbering; shares the graph's arrays."""
    return Topology(graph.indptr, graph.indices, graph.original_id)
