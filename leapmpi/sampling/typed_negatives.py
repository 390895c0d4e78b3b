"""Negatives of typed edges: each end is replaced in turn, by vertices of its type.

Negatives of an edge's source are those of the reversed edge's destination. Each relation and end draws by a sampler of
its own, so that negatives `in-batch` are ends of the same relation, and any negative sampler serves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np

from leapmpi.dataset.held_back_triples import triple_place
from leapmpi.dataset.topology import Topology
from leapmpi.sampling.candidates import Candidates, WeightedDraw
from leapmpi.sampling.negative_sampler import NegativeSampler
from leapmpi.sampling.replaced_ends import SharedEnds
from leapmpi.sampling.training_edges import BatchEdges
from leapmpi.system.counter_rng import DrawKey
from leapmpi.system.jit import compiled

SOURCE, DESTINATION = 0, 1
"""Columns of edges."""

_ANY_END = 2


@compiled
def _are_edges(fixed, lists, groups, wanted, replaces_source, indptr, indices, relations, original):
    """Return bool[B, K]: whether candidates lists[groups[i]] make edges of relation wanted[i] with the end fixed[i].

    The fixed end itself is a candidate, too.
    """
    out = np.empty((len(fixed), lists.shape[1]), np.bool_)
    for i in range(len(fixed)):
        for j in range(lists.shape[1]):
            found = lists[groups[i], j]
            u, v = (found, fixed[i]) if replaces_source else (fixed[i], found)
            out[i, j] = triple_place(u, v, wanted[i], indptr, indices, relations, original) >= 0
    return out


class TypeCandidates(Candidates):
    """The vertices of type number `kind` of a typed topology."""

    def __init__(self, topology: Topology, kind: int) -> None:
        super().__init__(topology)
        assert topology.types is not None, "the graph is typed"
        self._range = slice(*topology.types.bases[kind : kind + 2].tolist())
        self._draws: dict[Callable, WeightedDraw] = {}

    @property
    def vertices(self) -> int:
        return len(self._order)

    def by_degree(self, weigh: Callable[[np.ndarray], np.ndarray]) -> WeightedDraw:
        # Relations share a type, and so its running total.
        if weigh not in self._draws:
            self._draws[weigh] = super().by_degree(weigh)
        return self._draws[weigh]

    @cached_property
    def _order(self) -> np.ndarray:
        original = self.topology.original_id
        inside = np.flatnonzero((original >= self._range.start) & (original < self._range.stop))
        return inside[np.argsort(original[inside])]


class RelationCandidates(Candidates):
    """Candidates for the end `replaced` of edges of `relation`: vertices `of_type`."""

    def __init__(self, of_type: TypeCandidates, relation: int, replaced: int) -> None:
        super().__init__(of_type.topology)
        self._of_type, self.relation, self.replaced = of_type, relation, replaced
        self.salt = 3 * relation + replaced

    @property
    def vertices(self) -> int:
        return self._of_type.vertices

    def vertices_at(self, places: np.ndarray) -> np.ndarray:
        return self._of_type.vertices_at(places)

    def by_degree(self, weigh: Callable[[np.ndarray], np.ndarray]) -> WeightedDraw:
        return self._of_type.by_degree(weigh)

    def are_edges(self, sources: np.ndarray, found: np.ndarray, names: np.ndarray) -> np.ndarray:
        """Return bool[k]; `sources` are the ends that stay."""
        lists = self.topology
        arrays = lists.indptr, lists.indices, lists.relation, lists.original_id
        numbers, relations = np.arange(len(found)), np.full(len(found), self.relation)
        return _are_edges(sources, found[:, None], numbers, relations, self.replaced == SOURCE, *arrays)[:, 0]


class Negatives(Protocol):
    """Draws of negatives for the edges of a batch."""

    def draw(self, key: DrawKey, edges: BatchEdges, count: int, replaced: int) -> np.ndarray:
        """Draw `count` vertices for the end `replaced`, SOURCE or DESTINATION, of each of `edges`: int64[B, count].

        Pure; collective with a sharded topology.
        """
        ...

    def draw_shared(self, key: DrawKey, edges: BatchEdges, count: int, replaced: int) -> SharedEnds:
        """Draw `count` vertices that edges share; otherwise as `draw`."""
        ...


class PlainNegatives:
    """Negatives of the destinations of edges without types."""

    def __init__(self, sampler: NegativeSampler) -> None:
        self._sampler = sampler

    def draw(self, key: DrawKey, edges: BatchEdges, count: int, replaced: int) -> np.ndarray:
        """Draw; see Negatives."""
        assert replaced == DESTINATION, "a plain edge keeps its source"
        return self._sampler.draw(key, edges.ends, count, edges.names)

    def draw_shared(self, key: DrawKey, edges: BatchEdges, count: int, replaced: int) -> SharedEnds:
        """Draw; see Negatives."""
        return SharedEnds([self._sampler.draw_shared(key, count)], np.zeros(len(edges.ends), np.int64))


class TypedNegatives:
    """Negatives of typed edges by samplers of `kind`: one for each end of a relation, or for each type.

    known_count: whether shared negatives are negatives of an edge, too, with which they make another edge.
    """

    def __init__(
        self, kind: Callable[[Candidates], NegativeSampler], topology: Topology, known_count: bool = False
    ) -> None:
        assert topology.types is not None, "the graph is typed"
        self._kind, self._ends, self._topology = kind, topology.types.ends, topology
        self._known_count = known_count
        self._types: dict[int, TypeCandidates] = {}
        self._samplers: dict[tuple[int, int], NegativeSampler] = {}

    def draw(self, key: DrawKey, edges: BatchEdges, count: int, replaced: int) -> np.ndarray:
        """Draw; see Negatives."""
        found = np.empty((len(edges.ends), count), np.int64)
        assert edges.relations is not None, "typed edges have relations"
        # The end that stays comes first, as a sampler of destinations expects.
        order = [SOURCE, DESTINATION] if replaced == DESTINATION else [DESTINATION, SOURCE]
        for relation in np.unique(edges.relations).tolist():
            chosen = np.flatnonzero(edges.relations == relation)
            ends, names = (np.ascontiguousarray(each[chosen][:, order]) for each in (edges.ends, edges.names))
            sampler = self._sampler(relation, replaced, int(self._ends[relation, replaced]))
            found[chosen] = sampler.draw(key, ends, count, names)
        return found

    def draw_shared(self, key: DrawKey, edges: BatchEdges, count: int, replaced: int) -> SharedEnds:
        """Draw; see Negatives. All ends of a type have the same candidates."""
        assert edges.relations is not None, "typed edges have relations"
        types, groups = np.unique(self._ends[edges.relations, replaced], return_inverse=True)
        samplers = [self._sampler(kind, _ANY_END, kind) for kind in types.tolist()]
        lists = [each.draw_shared(key, count) for each in samplers]
        if not samplers or samplers[0].takes_all or self._known_count:
            return SharedEnds(lists, groups)
        return SharedEnds(lists, groups, self._known(edges, lists, groups, replaced))

    def _known(self, edges: BatchEdges, lists: list[np.ndarray], groups: np.ndarray, replaced: int) -> np.ndarray:
        """Return bool[B, K]: which vertices of its list, in place of the end `replaced`, make edges of training."""
        topology, stays = self._topology, edges.ends[:, 1 - replaced]
        assert edges.relations is not None, "typed edges have relations"
        arrays = topology.indptr, topology.indices, topology.relation, topology.original_id
        return _are_edges(stays, np.stack(lists), groups, edges.relations, replaced == SOURCE, *arrays)

    def _sampler(self, group: int, replaced: int, kind: int) -> NegativeSampler:
        """Return the sampler of a relation's end, or of a type with _ANY_END; it draws vertices of type `kind`."""
        if (group, replaced) not in self._samplers:
            if kind not in self._types:
                self._types[kind] = TypeCandidates(self._topology, kind)
            self._samplers[group, replaced] = self._kind(RelationCandidates(self._types[kind], group, replaced))
        return self._samplers[group, replaced]
