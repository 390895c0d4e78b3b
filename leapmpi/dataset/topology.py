"""Topology: who is an in-neighbour of whom, in the numbering the job works with.

Lists of in-neighbours are ordered by original id, whatever the numbering, so that a draw from a list
names the same vertices on every partition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.validation import check_bounds, check_range


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


def empty_topology(dataset: Dataset) -> Topology:
    """Private, unfilled arrays for the topology of `dataset`; the loader may use shared ones of this kind instead."""
    n, m = dataset.vertices, dataset.edges
    return Topology(np.empty(n + 1, np.int64), np.empty(m, names.index_dtype(n)), np.empty(n, np.int64))


def fill_topology(
    dataset: Dataset, part: int, indptr_out: np.ndarray, indices_out: np.ndarray, original_id_out: np.ndarray
) -> None:
    """Write the piece of part `part` into the arrays of the whole graph; different parts touch different elements.

    indptr_out: int64[n+1] (element 0 is written with part 0); indices_out: int32|int64[m]; original_id_out: int64[n].
    The digests of the topology are checked, and its ranges too, since a digest can be made again: whatever the file
    says, the arrays may be walked without leaving them.

    Raises DataError when the part is missing or damaged.
    """
    piece = dataset.part(part)
    piece.check_digests(features=False)
    check_bounds(piece.indptr, len(piece.indices), str(piece.path))
    check_range(piece.indices, dataset.vertices, str(piece.path))
    first, last = dataset.offsets[part], dataset.offsets[part + 1]
    edge_first, edge_last = dataset.edge_offsets[part], dataset.edge_offsets[part + 1]
    if part == 0:
        indptr_out[0] = 0
    indptr_out[first + 1 : last + 1] = piece.indptr[1:] + edge_first
    indices_out[edge_first:edge_last] = piece.indices
    original_id_out[first:last] = piece.original_id


def load_topology(dataset: Dataset) -> Topology:
    """The whole topology of `dataset` in private memory. Raises DataError when a part is missing or damaged."""
    topology = empty_topology(dataset)
    for part in range(dataset.parts):
        fill_topology(dataset, part, topology.indptr, topology.indices, topology.original_id)
    return topology
