"""Topology: the in-neighbours of all vertices, in the numbering of a graph or a dataset.

In-neighbours ascend by original id in every numbering, so that draws give the same vertices on every partition.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from leapmpi.dataset.edge_data import check_edge_values, check_not_negative
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.graph_types import GraphTypes, relation_dtype
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.digests import check_digest
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.validation import check_bounds, check_range, check_relations
from leapmpi.system.jit import compiled
from leapmpi.system.page_advice import write_back

_ALIGNMENT = mmap.PAGESIZE
"""Bytes by which arrays in one memory are aligned: pages, so that blocks of edges are whole ones."""

_COPIED = 1 << 22
"""Edges that are copied to a file at once."""

OF_EDGES = ("indices", "edge_weight", "edge_time", "edge_label", "relation")
"""Fields of a topology with an entry for each edge."""


@dataclass(frozen=True)
class Topology:
    """In-neighbours of n vertices as compressed sparse rows.

    indptr: int64[n+1]; indices: int32[m], or int64[m] from 2**31 vertices on; original_id: int64[n], the row of
    each vertex in the source. The in-neighbours of v are indices[indptr[v]:indptr[v+1]], by ascending original id.
    An edge's number is its position in `indices`. edge_weight: float32[m] or None, not negative; weight_sum: float64[n]
    or None, the sums of the weights of each vertex's in-edges; edge_time: int64[m], float64[m] or None; edge_label:
    int32[m] or None, -1 unlabelled; vertex_time: int64[n] or None. relation: uint8[m] or uint16[m] of a typed graph, of
    the schema `types`, or None: in-neighbours then ascend by (relation, original id).

    In a shard (leapmpi/sampling/sharded) vertices without a list may follow: they have an original id, and the
    in-degrees outside_degree: int64[k]; or neither, and `unnamed` is how many they are.
    """

    indptr: np.ndarray
    indices: np.ndarray
    original_id: np.ndarray
    edge_weight: np.ndarray | None = None
    weight_sum: np.ndarray | None = None
    edge_time: np.ndarray | None = None
    edge_label: np.ndarray | None = None
    vertex_time: np.ndarray | None = None
    relation: np.ndarray | None = None
    types: GraphTypes | None = None
    outside_degree: np.ndarray | None = None
    unnamed: int = 0
    in_file: bool = False
    """Whether arrays of edges are mapped from a file, so that draws announce their reads."""

    @property
    def list_arrays(self) -> dict[str, np.ndarray]:
        """Existing arrays of edges, by name of the field."""
        return {name: array for name, array in self.arrays.items() if name in OF_EDGES}

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Existing arrays, by name of the field."""
        return {name: array for name, array in vars(self).items() if isinstance(array, np.ndarray)}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def list_bytes(self) -> int:
        """Bytes of the arrays of edges."""
        return sum(array.nbytes for array in self.list_arrays.values())

    def exceeds(self, room: int | None) -> bool:
        """Return whether arrays of edges take more than `room` bytes; None: they have as many as they take."""
        return room is not None and self.list_bytes > room

    def memory_bytes(self, room: int | None, finding: int = 0) -> int:
        """Return the bytes in memory where arrays of edges have `room` bytes there; None: as many as they take.

        finding: bytes that it takes to find which lists of this rank or others stay in memory, before any does.
        """
        if room is None or not self.exceeds(room):
            return self.nbytes + finding
        return self.nbytes - self.list_bytes + max(room, finding)

    @property
    def vertices(self) -> int:
        """Number of vertices with a name here: of the whole graph, or those that a shard reads."""
        return len(self.original_id)

    @property
    def numbered(self) -> int:
        """Number of vertices that `indices` may name."""
        return len(self.original_id) + self.unnamed

    @property
    def edges(self) -> int:
        """Number of edges with a list here."""
        return len(self.indices)

    def degree(self, ids: np.ndarray) -> np.ndarray:
        """Return the in-degrees int64 of the vertices `ids` in the whole graph."""
        return self.indptr[ids + 1] - self.indptr[ids]

    def in_neighbours(self, ids: np.ndarray) -> np.ndarray:
        """Return those of the vertices `ids` (int64[k]), one after the other, with repetitions."""
        return self.indices[self.in_edges(ids)]

    def in_edges(self, ids: np.ndarray) -> np.ndarray:
        """Return the numbers of the in-edges of the vertices `ids` (int64[k]), one list after the other: int64."""
        return entries_of(self.indptr[ids], self.degree(ids))

    @property
    def degrees(self) -> np.ndarray:
        """In-degrees int64[n] of all vertices, those without a list here after the others."""
        own = np.diff(self.indptr)
        return own if self.outside_degree is None else np.concatenate((own, self.outside_degree))


def entries_of(begins: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the places of `counts` entries from each of `begins` on (int64[k] each), one list after the other."""
    places = np.repeat(begins - (np.cumsum(counts) - counts), counts)
    places += np.arange(len(places))
    return places


def places_among(wanted: np.ndarray, ids: np.ndarray, order: np.ndarray | None = None) -> np.ndarray:
    """Return the place in `ids` (integers [n]) of each of `wanted` (integers of any shape): int64, -1 for others.

    order: int64[n], in which `ids` ascend; None where they do as they stand.
    """
    if not len(ids):
        return np.full(wanted.shape, -1, np.int64)
    places = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
    places = places if order is None else order[places]
    return np.where(ids[places] == wanted, places, -1)


@compiled
def _row_sums(indptr, values, sums):
    """Sum each row's values, in float64 and in the order of the row."""
    for v in range(len(sums)):
        total = 0.0
        for e in range(indptr[v] - indptr[0], indptr[v + 1] - indptr[0]):
            total += values[e]
        sums[v] = total


def from_graph(graph: Graph) -> Topology:
    """Return the topology of an unpartitioned graph, in its numbering, with shared arrays."""
    weight, sums = graph.edge_data.weight, None
    if weight is not None:
        sums = np.empty(graph.vertices)
        _row_sums(np.asarray(graph.indptr), np.asarray(weight), sums)
    data = graph.edge_data
    arrays = graph.indptr, graph.indices, graph.original_id, weight, sums, data.time, data.labels, graph.time
    return Topology(*arrays, relation=data.relation, types=graph.types)


def topology_bytes(
    dataset: Dataset, weights: bool = False, times: bool = False, labels: bool = False, parts: range | None = None
) -> int:
    """Return the bytes of the arrays that `empty_topology` would allocate."""
    first, end = (0, dataset.parts) if parts is None else (parts.start, parts.stop)
    n = int(dataset.offsets[end] - dataset.offsets[first])
    m = int(dataset.edge_offsets[end] - dataset.edge_offsets[first])
    of_vertex, of_edge = (
        16 + 8 * weights + 8 * (times and dataset.has_vertex_time),
        np.dtype(names.index_dtype(dataset.vertices)).itemsize,
    )
    of_relation = np.dtype(relation_dtype(len(dataset.types.relations))).itemsize if dataset.types else 0
    return 8 + n * of_vertex + m * (of_edge + 4 * weights + 8 * times + 4 * labels + of_relation)


def empty_topology(
    dataset: Dataset, weights: bool = False, times: bool = False, labels: bool = False, parts: range | None = None
) -> Topology:
    """Allocate uninitialised arrays for the topology of `dataset`, for `fill_topology`.

    weights, times, labels: whether to hold those of edges, which the dataset must have; times of vertices accompany
    those of edges, if there are any. parts: consecutive parts with space for their vertices; None for all.
    """
    first, end = (0, dataset.parts) if parts is None else (parts.start, parts.stop)
    n = int(dataset.offsets[end] - dataset.offsets[first])
    m = int(dataset.edge_offsets[end] - dataset.edge_offsets[first])
    kind = names.index_dtype(dataset.vertices)
    topology = Topology(np.empty(n + 1, np.int64), np.empty(m, kind), np.empty(n, np.int64))
    if weights:
        topology = replace(topology, edge_weight=np.empty(m, np.float32), weight_sum=np.empty(n))
    if times:
        dtype = dataset.part(0).edge_data.arrays()[names.EDGE_TIME].dtype
        topology = replace(topology, edge_time=np.empty(m, dtype))
    if times and dataset.has_vertex_time:
        topology = replace(topology, vertex_time=np.empty(n, np.int64))
    if labels:
        topology = replace(topology, edge_label=np.empty(m, np.int32))
    if dataset.types is not None:
        kind = relation_dtype(len(dataset.types.relations))
        topology = replace(topology, relation=np.empty(m, kind), types=dataset.types)
    return topology


def layout(arrays: Mapping[str, np.ndarray]) -> list[int]:
    """Return the offset of each of `arrays` in one memory that holds them all, and its size."""
    sizes = (-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays.values())
    return list(accumulate(sizes, initial=0))


def placed(arrays: Mapping[str, np.ndarray], memory: mmap.mmap) -> dict[str, Any]:
    """Return arrays like `arrays`, by name, as views into `memory` by their `layout`."""
    places = zip(arrays.items(), layout(arrays), strict=False)
    return {name: np.frombuffer(memory, array.dtype, len(array), start) for (name, array), start in places}


def with_lists_in(topology: Topology, memory: mmap.mmap) -> Topology:
    """Return `topology` with uninitialised arrays of edges in `memory`, which maps a file."""
    return replace(topology, **placed(topology.list_arrays, memory), in_file=True)


def fill_topology(dataset: Dataset, part: int, topology: Topology, first_part: int = 0) -> None:
    """Write the rows of part `part` into `topology`, whose first vertex is that of `first_part`.

    Different parts write different elements, the first one indptr[0]. In-neighbours keep their ids in the dataset.

    Raises DataError when the part is missing or damaged, or a weight that is to be held is negative.
    """
    # Digests can be forged: check ranges too, so that kernels stay inside these arrays.
    opened = dataset.part(part)
    check_digest(opened.path, names.PART_FORMAT, opened.arrays(features=False))
    check_bounds(opened.indptr, len(opened.indices), str(opened.path))
    check_range(opened.indices, dataset.vertices, str(opened.path))

    # Offsets count from the first part that is held, which need not be part 0.
    first, last = dataset.offsets[part : part + 2] - dataset.offsets[first_part]
    edge_first, edge_last = dataset.edge_offsets[part : part + 2] - dataset.edge_offsets[first_part]
    if part == first_part:
        topology.indptr[0] = 0
    topology.indptr[first + 1 : last + 1] = opened.indptr[1:] + edge_first
    of_part = slice(int(edge_first), int(edge_last))
    _copy(opened.indices, topology.indices[of_part], topology.in_file)
    topology.original_id[first:last] = opened.original_id
    # Only what the caller has made room for is read; values are checked, since kernels trust them.
    data = opened.edge_data
    if topology.edge_weight is not None and topology.weight_sum is not None:
        assert data.weight is not None, "the caller has seen that there are weights"
        check_not_negative(data.weight, str(opened.path))
        _copy(data.weight, topology.edge_weight[of_part], topology.in_file)
        _row_sums(np.asarray(opened.indptr), np.asarray(data.weight), topology.weight_sum[first:last])
    if topology.edge_time is not None:
        assert data.time is not None, "the caller has seen that there are times"
        check_edge_values(names.EDGE_TIME, data.time, 0, str(opened.path))
        _copy(data.time, topology.edge_time[of_part], topology.in_file)
    if topology.edge_label is not None:
        assert data.labels is not None, "the caller has seen that there are labels"
        check_edge_values(names.EDGE_LABELS, data.labels, 0, str(opened.path), data.classes)
        _copy(data.labels, topology.edge_label[of_part], topology.in_file)
    if topology.relation is not None:
        assert data.relation is not None, "the dataset is typed"
        check_relations(data.relation, data.relations, str(opened.path))
        _copy(data.relation, topology.relation[of_part], topology.in_file)
    if topology.vertex_time is not None:
        assert opened.time is not None, "the dataset says that there are times"
        topology.vertex_time[first:last] = opened.time


def _copy(values: np.ndarray, out: np.ndarray, in_file: bool) -> None:
    """Copy `values` of edges to `out`; if that is `in_file`, its pages are written as they fill."""
    step = _COPIED if in_file else max(1, len(values))
    for begin in range(0, len(values), step):
        out[begin : begin + step] = values[begin : begin + step]
        if in_file:
            write_back(out[begin : begin + step])


def load_topology(dataset: Dataset, weights: bool = False, times: bool = False, labels: bool = False) -> Topology:
    """Load the whole topology of `dataset` into private memory; arguments are those of `empty_topology`.

    Raises DataError if a part is missing or damaged.
    """
    topology = empty_topology(dataset, weights, times, labels)
    for part in range(dataset.parts):
        fill_topology(dataset, part, topology)
    return topology
