"""TopologyShard: the in-edges of one rank's vertices alone, of a topology that is spread over the ranks.

A rank's vertices are numbered from 0 there: own number = id less the first id. Sources keep their ids in the dataset,
unless they are `named`: then a source that is not the rank's own has a number after those, with its original id and
in-degree beside it, for what draws by these. Memory grows with the rank's vertices, in-edges and distinct sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from leapmpi.dataset.partitioned import Dataset, Part
from leapmpi.dataset.topology import Topology, empty_topology, fill_topology
from leapmpi.system.jit import compiled

_CHUNK = 1 << 22
"""Edges whose sources are looked at together."""


@dataclass(frozen=True, eq=False)
class TopologyShard:
    """The lists of the vertices `first` to `end` (exclusive) of a graph of `vertices` vertices and `edges` edges."""

    own: Topology
    """The rank's vertices by their own numbers; then, where sources are named, those of others that are sources."""
    first: int
    end: int
    first_edge: int
    """The number in the dataset of the first edge here."""
    vertices: int
    edges: int
    outside: np.ndarray | None = None
    """int64[k], ascending: the ids of the sources that follow the rank's own vertices in `own`; None: not named."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        held = sum(array.nbytes for array in self.own.arrays.values())
        return held + (0 if self.outside is None else self.outside.nbytes)

    def own_numbers(self, ids: np.ndarray) -> np.ndarray:
        """int64[k]: the own numbers of `ids` (int64[k]), all of them this rank's. Raises ValueError for others."""
        if len(ids) and not self.first <= ids.min() <= ids.max() < self.end:
            raise ValueError(f"the shard holds the vertices {self.first} to {self.end - 1} alone")
        return ids - self.first

    def ids_of(self, sources: np.ndarray) -> np.ndarray:
        """int64[k]: the ids in the dataset of `sources`, integers[k] as they stand in `own.indices`."""
        sources = sources.astype(np.int64)
        if self.outside is not None:
            _to_ids(sources, self.first, self.end, self.outside)
        return sources


def whole(topology: Topology | TopologyShard) -> Topology:
    """`topology`, where settings that cannot do with a shard have been refused, so that it is whole."""
    assert isinstance(topology, Topology), "what reads all lists is refused where the topology is sharded"
    return topology


@compiled
def _to_ids(sources, first, end, outside):
    """Replace numbers in a shard by ids in the dataset."""
    own = end - first
    for e in range(len(sources)):
        sources[e] = first + sources[e] if sources[e] < own else outside[sources[e] - own]


@compiled
def _to_numbers(sources, first, end, outside):
    """Replace ids in the dataset by numbers in a shard, of which `outside` has every id that is not its own."""
    own = end - first
    for e in range(len(sources)):
        vertex = np.int64(sources[e])
        sources[e] = vertex - first if first <= vertex < end else own + np.searchsorted(outside, vertex)


def load_shard_of_topology(
    dataset: Dataset, parts: range, weights: bool = False, times: bool = False, named: bool = False
) -> TopologyShard:
    """The lists of the vertices of `parts`, which follow each other, read from their files alone.

    weights, times: whether those of edges are held, which the dataset must have; named: whether sources are named,
    for which the files of other parts are mapped and read here and there.

    Raises DataError when a part is missing or damaged, or a weight that is to be held is negative.
    """
    own = empty_topology(dataset, weights, times, parts=parts)
    for part in parts:
        fill_topology(dataset, part, own, parts.start)
    first, end = int(dataset.offsets[parts.start]), int(dataset.offsets[parts.stop])
    first_edge = int(dataset.edge_offsets[parts.start])
    outside = None
    if named:
        outside = _outside_sources(own.indices, first, end)
        _to_numbers(own.indices, first, end, outside)
        original = np.concatenate((own.original_id, original_ids(dataset, outside)))
        own = replace(own, original_id=original, outside_degree=_in_degrees(dataset, outside))
    return TopologyShard(own, first, end, first_edge, dataset.vertices, dataset.edges, outside)


def shard_bytes(topology: Topology, first: int, end: int, named: bool) -> int:
    """Bytes of the shard of the vertices `first` to `end` (exclusive) of a whole `topology`. Local."""
    edges = slice(int(topology.indptr[first]), int(topology.indptr[end]))
    of_vertices = [topology.original_id[first:end], topology.indptr[first : end + 1]]
    if topology.weight_sum is not None:
        of_vertices.append(topology.weight_sum[first:end])
    of_edges = [topology.indices, topology.edge_weight, topology.edge_time]
    held = sum(each.nbytes for each in of_vertices)
    held += sum(each[edges].nbytes for each in of_edges if each is not None)
    # The id, the original id and the in-degree of each source elsewhere.
    return held + (24 * len(_outside_sources(topology.indices[edges], first, end)) if named else 0)


def _outside_sources(indices: np.ndarray, first: int, end: int) -> np.ndarray:
    """The distinct ids int64 among `indices` that are not in [first, end), ascending."""
    found = np.empty(0, np.int64)
    for start in range(0, len(indices), _CHUNK):
        chunk = indices[start : start + _CHUNK]
        found = np.union1d(found, chunk[(chunk < first) | (chunk >= end)].astype(np.int64))
    return found


def original_ids(dataset: Dataset, ids: np.ndarray) -> np.ndarray:
    """int64[k]: the original ids of the vertices `ids` (int64[k], in any order), read from the part files.

    Raises DataError when a part is missing or of another size.
    """
    return _of_parts(dataset, ids, lambda part, rows: part.original_id[rows])


def _in_degrees(dataset: Dataset, ids: np.ndarray) -> np.ndarray:
    """int64[k]: the in-degrees of the vertices `ids`, read from the part files."""
    return _of_parts(dataset, ids, lambda part, rows: part.indptr[rows + 1] - part.indptr[rows])


def _of_parts(dataset: Dataset, ids: np.ndarray, read: Callable[[Part, np.ndarray], np.ndarray]) -> np.ndarray:
    """int64[k]: what `read` finds for `ids` in the part that holds each, given their rows there."""
    values = np.empty(len(ids), np.int64)
    order = np.argsort(ids, kind="stable")
    bounds = np.searchsorted(ids[order], dataset.offsets)
    for number in range(dataset.parts):
        mine = order[bounds[number] : bounds[number + 1]]
        if len(mine):
            values[mine] = read(dataset.part(number), ids[mine] - dataset.offsets[number])
    return values
