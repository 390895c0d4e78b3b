"""Shard of a topology: the in-edges of one rank's vertices alone.

A rank's vertices are numbered from 0: own number = id minus the first id. Sources keep their ids in the dataset, unless
they are *numbered* or *named*. Numbered: a source of another rank has a number after the own ones, for algorithms over
all lists. Named: its original id and in-degree are stored as well, for draws that read them. Memory grows with the
rank's vertices, in-edges and distinct sources. While sources are numbered, it takes another quarter of a byte per
vertex of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from leapmpi.dataset.edge_splits import has_edge
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import (
    OF_EDGES,
    Topology,
    empty_topology,
    fill_topology,
    layout,
    places_among,
    with_lists_in,
)
from leapmpi.errors import ConfigError
from leapmpi.sampling.sharded.id_set import IdSet
from leapmpi.system.jit import compiled
from leapmpi.system.unnamed_files import mapped_file


class NoWholeTopology(ConfigError, AttributeError):
    """The whole topology is read where a rank holds a shard of it: as an AttributeError, `hasattr` is False."""


@dataclass(frozen=True, eq=False)
class TopologyShard:
    """Lists of the vertices `first` to `end` (exclusive) of a graph of `vertices` vertices and `edges` edges."""

    own: Topology
    """Rank's vertices by their own numbers; then, if sources are numbered, those of other ranks."""
    first: int
    end: int
    first_edge: int
    """Number in the dataset of the shard's first edge."""
    vertices: int
    edges: int
    outside: np.ndarray | None = None
    """Integers[k], ascending: ids of the sources after the rank's own vertices in `own`; None: none."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        held = sum(array.nbytes for array in self.own.arrays.values())
        return held + (0 if self.outside is None else self.outside.nbytes)

    def own_numbers(self, ids: np.ndarray) -> np.ndarray:
        """Return the own numbers of `ids` (int64[k]), all of them this rank's: int64[k].

        Raises ValueError for others.
        """
        if len(ids) and not self.first <= ids.min() <= ids.max() < self.end:
            raise ValueError(f"the shard holds the vertices {self.first} to {self.end - 1} alone")
        return ids - self.first

    def numbers_of(self, ids: np.ndarray) -> np.ndarray:
        """Return the numbers of `ids` (int64[k]) in `own.indices`: int64[k]; -1 for ids on no list of this rank.

        Sources must be numbered.
        """
        assert self.outside is not None, "sources are numbered"
        inside = (ids >= self.first) & (ids < self.end)
        place, own = places_among(ids, self.outside), self.end - self.first
        return np.where(inside, ids - self.first, np.where(place < 0, -1, own + place))

    def lists(self, edges: np.ndarray) -> np.ndarray:
        """Return bool[k]: whether each of `edges` (int64[k, 2]), to vertices of this rank, is one of the topology.

        Sources must be named.
        """
        sources = self.numbers_of(edges[:, 0])
        found = np.stack([sources, self.own_numbers(edges[:, 1])], axis=1)
        return (sources >= 0) & _are_listed(found, self.own.indptr, self.own.indices, self.own.original_id)

    def ids_of(self, sources: np.ndarray) -> np.ndarray:
        """Return the ids in the dataset of `sources`, integers[k] of `own.indices`: int64[k]."""
        sources = sources.astype(np.int64)
        if self.outside is not None:
            _to_ids(sources, self.first, self.end, self.outside)
        return sources


def whole(topology: Topology | TopologyShard) -> Topology:
    """Return `topology`, known to be whole because unsuitable settings have been refused."""
    assert isinstance(topology, Topology), "what reads all lists is refused where the topology is sharded"
    return topology


@compiled
def _are_listed(edges, indptr, indices, original):
    out = np.empty(len(edges), np.bool_)
    for e in range(len(edges)):
        out[e] = has_edge(max(0, edges[e, 0]), edges[e, 1], indptr, indices, original)
    return out


@compiled
def _to_ids(sources, first, end, outside):
    """Replace numbers in a shard by ids in the dataset."""
    own = end - first
    for e in range(len(sources)):
        sources[e] = first + sources[e] if sources[e] < own else outside[sources[e] - own]


def load_shard_of_topology(
    dataset: Dataset,
    parts: range,
    weights: bool = False,
    times: bool = False,
    labels: bool = False,
    numbered: bool = False,
    in_file: bool = False,
) -> TopologyShard:
    """Load the lists of the vertices of consecutive `parts`, from their files alone.

    weights, times, labels: whether to hold those of edges, which the dataset must have; numbered: whether to number
    sources, for names, too (owner_names.py). in_file: whether the lists stay in a file on the disk of temporary files,
    not in memory.

    Raises DataError for a missing or damaged part, or a negative weight, and with `in_file` those of `unnamed_file`.
    """
    own = empty_topology(dataset, weights, times, labels, parts)
    if in_file:
        own = with_lists_in(own, mapped_file(layout(own.list_arrays)[-1], "in-neighbour lists take"))
    for part in parts:
        fill_topology(dataset, part, own, parts.start)
    first, end = int(dataset.offsets[parts.start]), int(dataset.offsets[parts.stop])
    first_edge = int(dataset.edge_offsets[parts.start])
    # Sources of other ranks are numbered after own vertices, so arrays by number are as long as this rank's share.
    outside = None
    if numbered:
        own, outside = _renumbered(own, dataset.vertices, first, end)
    return TopologyShard(own, first, end, first_edge, dataset.vertices, dataset.edges, outside)


def shard_of(topology: Topology, first: int, end: int, named: bool) -> TopologyShard:
    """Return the shard of the vertices `first` to `end` (exclusive) of a whole `topology`. Local.

    named: whether sources are named.
    """
    own, outside = _cut(topology, first, end), None
    if named:
        own, outside = _renumbered(replace(own, indices=own.indices.copy()), topology.vertices, first, end)
    facts = first, end, int(topology.indptr[first]), topology.vertices, topology.edges
    found = TopologyShard(own, *facts, outside)
    return found if outside is None else with_names(found, topology.original_id[outside], topology.degree(outside))


def _cut(topology: Topology, first: int, end: int) -> Topology:
    """Return the lists of the vertices `first` to `end` (exclusive) of a whole `topology`, of ids as they are."""
    edges, rows = slice(int(topology.indptr[first]), int(topology.indptr[end])), slice(first, end)
    arrays: dict[str, Any] = {
        name: array[edges if name in OF_EDGES else rows] for name, array in topology.arrays.items()
    }
    return replace(topology, **{**arrays, "indptr": topology.indptr[first : end + 1] - edges.start})


def _renumbered(own: Topology, vertices: int, first: int, end: int) -> tuple[Topology, np.ndarray]:
    """Number the sources of `own`, in place; returns them, and integers[k], ascending: those of other ranks."""
    found = _outside_sources(own.indices, vertices, first, end)
    outside = found.listed(own.indices.dtype)
    found.renumber(own.indices)
    return replace(own, unnamed=len(outside)), outside


def with_names(shard: TopologyShard, original: np.ndarray, degree: np.ndarray) -> TopologyShard:
    """Return `shard` with original ids and in-degrees, int64[k], of the sources of other ranks."""
    names = np.concatenate((shard.own.original_id, original))
    return replace(shard, own=replace(shard.own, original_id=names, outside_degree=degree, unnamed=0))


def shard_bytes(shard: TopologyShard, named: bool, room: int | None = None, finding: int = 0) -> int:
    """Return the bytes in memory of `shard`, whose sources are not numbered, or of it with names. Local.

    room: bytes for its lists, which are in a file if they take more; None: as many as they take. finding: as in
    `Topology.memory_bytes`.
    """
    own = shard.own
    # Named remote sources add their id, original id and in-degree.
    outside = _outside_sources(own.indices, shard.vertices, shard.first, shard.end).count if named else 0
    return own.memory_bytes(room, finding) + (own.indices.itemsize + 16) * outside


def _outside_sources(indices: np.ndarray, vertices: int, first: int, end: int) -> IdSet:
    """Return the distinct ids among `indices`, of a graph of `vertices`, that are not in [first, end)."""
    found = IdSet(vertices, first, end)
    found.add(indices)
    return found


def original_ids(dataset: Dataset, ids: np.ndarray) -> np.ndarray:
    """Read the original ids of the vertices `ids` (int64[k], in any order) from the part files: int64[k].

    Raises DataError for a missing part, or one of another size.
    """
    values = np.empty(len(ids), np.int64)
    order = np.argsort(ids, kind="stable")
    bounds = np.searchsorted(ids[order], dataset.offsets)
    for number in range(dataset.parts):
        mine = order[bounds[number] : bounds[number + 1]]
        if len(mine):
            values[mine] = dataset.part(number).original_id[ids[mine] - dataset.offsets[number]]
    return values
