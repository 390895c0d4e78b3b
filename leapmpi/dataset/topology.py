"""Topology: the in-neighbours of all vertices, in the numbering of a graph or a dataset.

In-neighbours ascend by original id in every numbering, so that a draw from them gives the same vertices on every
partition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.digests import check_digest
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
        return len(self.original_id)

    @property
    def edges(self) -> int:
        return len(self.indices)

    def degree(self, ids: np.ndarray) -> np.ndarray:
        """In-degrees int64 of the vertices `ids` in the whole graph."""
        return self.indptr[ids + 1] - self.indptr[ids]


def from_graph(graph: Graph) -> Topology:
    """The topology of an unpartitioned graph, in the numbering of the graph, whose arrays it shares."""
    return Topology(graph.indptr, graph.indices, graph.original_id)


def empty_topology(dataset: Dataset) -> Topology:
    """Uninitialised arrays for the topology of `dataset`, to be filled by `fill_topology`."""
    n, m = dataset.vertices, dataset.edges
    return Topology(np.empty(n + 1, np.int64), np.empty(m, names.index_dtype(n)), np.empty(n, np.int64))


def fill_topology(dataset: Dataset, part: int, topology: Topology) -> None:
    """Write the rows of part `part` into `topology`; different parts write different elements, part 0 indptr[0].

    Raises DataError when the part is missing or damaged.
    """
    # Ranges are checked beside digests: whatever a crafted file holds, kernels stay inside these arrays.
    opened = dataset.part(part)
    check_digest(opened.path, names.PART_FORMAT, opened.arrays(features=False))
    check_bounds(opened.indptr, len(opened.indices), str(opened.path))
    check_range(opened.indices, dataset.vertices, str(opened.path))

    first, last = dataset.offsets[part : part + 2]
    edge_first, edge_last = dataset.edge_offsets[part : part + 2]
    if part == 0:
        topology.indptr[0] = 0
    topology.indptr[first + 1 : last + 1] = opened.indptr[1:] + edge_first
    topology.indices[edge_first:edge_last] = opened.indices
    topology.original_id[first:last] = opened.original_id


def load_topology(dataset: Dataset) -> Topology:
    """The whole topology of `dataset` in private memory. Raises DataError when a part is missing or damaged."""
    topology = empty_topology(dataset)
    for part in range(dataset.parts):
        fill_topology(dataset, part, topology)
    return topology
