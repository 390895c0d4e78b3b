"""Draws of one iteration without some edges, usually the target edges to predict.

Destinations of these edges draw from a copy of their list without them; all others draw as usual. So no block of the
iteration holds a target edge or its reverse, at any hop and on any rank. In-degrees remain those of the whole topology.
In a typed graph an edge is left out by its relation: others between the same ends remain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from leapmpi.dataset.graph_types import MOST_VERTICES
from leapmpi.dataset.topology import Topology
from leapmpi.sampling.sampler import Drawn
from leapmpi.system.counter_rng import TRAIN, DrawKey
from leapmpi.system.jit import compiled


class DrawsFromLists(Protocol):
    """Sampler whose draws for a vertex read only its list in `topology`, and original ids."""

    def drawing_from(self, topology: Topology) -> DrawsFromLists:
        """Return a copy that draws from other lists; see HopSampler.drawing_from."""

    def draw_all(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        """Draw; see HopSampler.draw_all."""


_SOURCES = np.int64(MOST_VERTICES)


@compiled
def _without(vertices, starts, sources, topology_indptr, topology_indices, relation, indptr, numbers):
    """Write the positions of the lists of `vertices` without their `sources`; return their number.

    sources[starts[i]:starts[i + 1]] belong to vertex i, ascending; with `relation` they are relation x _SOURCES +
    source.
    """
    count = 0
    for i in range(len(vertices)):
        removed = sources[starts[i] : starts[i + 1]]
        for e in range(topology_indptr[vertices[i]], topology_indptr[vertices[i] + 1]):
            source = np.int64(topology_indices[e])
            if len(relation):
                source += np.int64(relation[e]) * _SOURCES
            # A batch leaves out few edges of a list: a search for each entry needs no marks over all sources.
            place = np.searchsorted(removed, source)
            if place == len(removed) or removed[place] != source:
                numbers[count] = e
                count += 1
        indptr[i + 1] = count
    return count


@compiled
def _merge(touched, indptr_a, values_a, indptr_b, values_b, indptr, values):
    """Interleave values of the draws of two groups of destinations; `touched` bool[n] marks group b."""
    a, b = 0, 0
    for i in range(len(touched)):
        if touched[i]:
            first, end, given = indptr_b[b], indptr_b[b + 1], values_b
            b += 1
        else:
            first, end, given = indptr_a[a], indptr_a[a + 1], values_a
            a += 1
        for e in range(first, end):
            values[indptr[i] + e - first] = given[e]


class LeftOut:
    """Edges left out of all draws with `key`: `edges` int64[k, 2], sources and destinations; with relations if typed.

    vertices: int64[v], the affected destinations, ascending. topology: their lists without these edges, vertex by
    vertex. numbers: int64, positions of the remaining edges in the whole topology. scale: float64[v], old over new
    length of each list.
    """

    def __init__(self, topology: Topology, key: DrawKey, edges: np.ndarray) -> None:
        self.key = key
        relation = topology.relation
        sources = edges[:, 0] if relation is None else edges[:, 0] + edges[:, 2] * _SOURCES
        by_destination = np.unique(np.column_stack([edges[:, 1], sources]), axis=0)
        self.vertices, starts = np.unique(by_destination[:, 0], return_index=True)
        starts = np.append(starts, len(by_destination))
        degree = topology.degree(self.vertices)

        # The lists of these vertices, by their number among them.
        indptr = np.zeros(len(self.vertices) + 1, np.int64)
        numbers = np.empty(int(degree.sum()), np.int64)
        sources = np.ascontiguousarray(by_destination[:, 1])
        relations = np.empty(0, np.uint8) if relation is None else relation
        count = _without(self.vertices, starts, sources, topology.indptr, topology.indices, relations, indptr, numbers)
        self.numbers = numbers = numbers[:count]
        weight, time = (None if each is None else each[numbers] for each in (topology.edge_weight, topology.edge_time))
        indices, original = topology.indices[numbers], topology.original_id
        kept = None if relation is None else relation[numbers]
        lists = Topology(indptr, indices, original, edge_weight=weight, edge_time=time)
        self.topology = replace(lists, relation=kept, types=topology.types)
        # Weights of a typed draw refer to one relation each, and remain those of its shorter list.
        self.scale = degree / np.maximum(1, np.diff(indptr)) if relation is None else np.ones(len(degree))

    def holds_for(self, key: DrawKey) -> bool:
        """Return whether draws with `key` leave the edges out.

        Raises ValueError for training draws with another key, whose target edges are not registered.
        """
        if key != self.key and key.stream == TRAIN:
            raise ValueError(f"edges were left out for {self.key}, not for {key}")
        return key == self.key

    def draw(
        self,
        sampler: DrawsFromLists,
        key: DrawKey,
        hop: int,
        vertices: np.ndarray,
        original: np.ndarray,
        degree: np.ndarray,
    ) -> Drawn:
        """Draw for `vertices` by `sampler.draw_all` without these edges, with their key."""
        number = np.searchsorted(self.vertices, vertices)
        number[number == len(self.vertices)] = 0
        touched = self.vertices[number] == vertices if len(self.vertices) else np.zeros(len(vertices), bool)
        if not touched.any():
            return sampler.draw_all(key, hop, vertices, original, degree)

        # Affected destinations draw from their own lists. Copy the result: it may be working memory.
        mine = number[touched]
        shorter = sampler.drawing_from(self.topology)
        found = shorter.draw_all(key, hop, mine, original[touched], np.diff(self.topology.indptr)[mine])
        found = found._replace(neighbours=found.neighbours.copy())
        rest = ~touched
        others = sampler.draw_all(key, hop, vertices[rest], original[rest], degree[rest])
        return self._merged(touched, others, found, mine)

    def _merged(self, touched: np.ndarray, others: Drawn, found: Drawn, mine: np.ndarray) -> Drawn:
        """Interleave both groups by destination; `mine` int64 are the numbers of the affected ones."""
        counts = np.empty(len(touched), np.int64)
        counts[touched], counts[~touched] = np.diff(found.indptr), np.diff(others.indptr)
        indptr = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        weight = found.weight
        if weight is not None:
            # Scaled up: weights estimate sums over the full in-degree.
            weight = (weight * np.repeat(self.scale[mine], np.diff(found.indptr))).astype(np.float32)

        def interleaved(of_others: np.ndarray | None, of_found: np.ndarray | None) -> np.ndarray | None:
            if of_others is None or of_found is None:
                return None
            values = np.empty(indptr[-1], of_others.dtype)
            _merge(touched, others.indptr, of_others, found.indptr, of_found, indptr, values)
            return values

        neighbours = interleaved(others.neighbours, found.neighbours)
        assert neighbours is not None, "draws have neighbours"
        relation = interleaved(others.relation, found.relation)
        return Drawn(indptr, neighbours, interleaved(others.weight, weight), relation)
