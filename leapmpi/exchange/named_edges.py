"""Destinations that a rank names to the owners of their sources, with the edges that start there.

An owner without the list of a destination cannot repeat its draw. Where the topology is sharded, the requesting rank
therefore names the owner's drawn rows, the number of all drawn, and the factors by which shares are scaled. Only the
owner of the destination itself has its list: it may draw again, from the id alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.dataset.topology import Topology, entries_of
from leapmpi.sampling.block import Block, indptr_of
from leapmpi.sampling.edge_lookup import drawn_weights
from leapmpi.sampling.sharded.answer_format import (
    NUMBER,
    WEIGHT,
    WEIGHT_SUM,
    AnswerFormat,
    Column,
    pack,
    row_words,
    unpack,
)
from leapmpi.sampling.sharded.remote_lists import KIND
from leapmpi.system.jit import compiled


@compiled
def _edges_at(destinations, owner, indptr, home_of_edge, pair_indptr, edges):
    """Write the edges of each pair of destination and owner that start at the owner; `edges` may be empty to count."""
    count = 0
    for pair in range(len(destinations)):
        for e in range(indptr[destinations[pair]], indptr[destinations[pair] + 1]):
            if home_of_edge[e] == owner[pair]:
                if len(edges):
                    edges[count] = e
                count += 1
        pair_indptr[pair + 1] = count


@compiled
def _sums_by_relation(indptr, relation, weight, sums):
    """Write, for each edge, the sum of weights over the edges of its destination and relation; these follow each other.

    An empty `weight` counts edges.
    """
    for i in range(len(indptr) - 1):
        begin = indptr[i]
        while begin < indptr[i + 1]:
            end, total = begin, 0.0
            while end < indptr[i + 1] and relation[end] == relation[begin]:
                total += weight[end] if len(weight) else 1.0
                end += 1
            sums[begin:end] = total
            begin = end


def sums_by_relation(indptr: np.ndarray, relation: np.ndarray | None, weight: np.ndarray | None) -> np.ndarray | None:
    """Return float64[edges], the sampled weight of the destination and relation of each edge; None without relations.

    indptr: int64[n + 1]; relation: unsigned[edges], ascending within a destination; weight: float32[edges], or None to
    count edges.
    """
    if relation is None:
        return None
    sums = np.empty(len(relation))
    _sums_by_relation(indptr, relation, np.empty(0, np.float32) if weight is None else weight, sums)
    return sums


def counts_by_relation(indptr: np.ndarray, relation: np.ndarray | None, weight: np.ndarray | None) -> np.ndarray | None:
    """Return int64[edges], the drawn edges of the destination and relation of each; None where the sums count them."""
    found = None if weight is None else sums_by_relation(indptr, relation, None)
    return None if found is None else found.astype(np.int64)


@dataclass(frozen=True, eq=False)
class KnownEdges:
    """Destinations and edges with all facts that a share needs, whatever lists are at hand."""

    destinations: np.ndarray
    """int64[n]: ids."""
    sampled: np.ndarray
    """int64[n]: the number of edges that each drew, on all ranks together."""
    degree: np.ndarray
    """int64[n]: in-degrees."""
    indptr: np.ndarray
    """int64[n + 1]: offsets of the listed edges of each."""
    neighbours: np.ndarray
    """int64[edges]: ids of the sources."""
    weight: np.ndarray | None
    """float32[edges]: the sampler's."""
    edge_weight: np.ndarray | None
    """float32[edges]: those of the dataset; present together with the two sums."""
    drawn_weight: np.ndarray | None
    """float64[n]: the sum over the drawn edges of each, on all ranks together."""
    weight_sum: np.ndarray | None
    """float64[n]: that over all in-edges of each."""
    relation: np.ndarray | None = None
    """unsigned[edges]: relations of a typed graph; present together with the sums."""
    relation_sum: np.ndarray | None = None
    """float64[edges]: the number, or the sum of the sampler's weights, of the edges that the destination drew of the
    edge's relation, on all ranks together."""
    relation_count: np.ndarray | None = None
    """int64[edges]: their number, present where the sampler gives weights."""

    @classmethod
    def of(cls, block: Block) -> KnownEdges:
        """Return all of a block."""
        weights = block.weight, block.edge_weight, block.drawn_weight, block.dst_weight_sum
        drawn = block.dst, np.diff(block.indptr), block.dst_degree, block.indptr, block.neighbours
        return cls(*drawn, *weights, *_typed(block.indptr, block.relation, block.weight))

    @classmethod
    def listed(
        cls,
        topology: Topology,
        destinations: np.ndarray,
        indptr: np.ndarray,
        neighbours: np.ndarray,
        weight: np.ndarray | None = None,
        relation: np.ndarray | None = None,
        sampled: np.ndarray | None = None,
    ) -> KnownEdges:
        """Look up the facts of drawn edges in a whole `topology`; arrays are named as above.

        sampled: given where `neighbours` lacks some of the drawn edges.
        """
        edge_weight = drawn = total = None
        if topology.weight_sum is not None:
            _, edge_weight, drawn = drawn_weights(topology, indptr, neighbours, destinations)
            total = topology.weight_sum[destinations]
        # A mean divides by all drawn edges; a list that lacks some of them cannot tell how many there were.
        sampled = np.diff(indptr) if sampled is None else sampled
        degree = topology.degree(destinations)
        weights = weight, edge_weight, drawn, total
        return cls(destinations, sampled, degree, indptr, neighbours, *weights, *_typed(indptr, relation, weight))

    def and_then(self, others: KnownEdges) -> KnownEdges:
        """Append `others`."""
        present = {name: array for name, array in vars(self).items() if array is not None}
        joined = {name: np.concatenate((array, getattr(others, name))) for name, array in present.items()}
        joined["indptr"] = np.concatenate((self.indptr, self.indptr[-1] + others.indptr[1:]))
        return replace(self, **joined)

    def taken(self, order: np.ndarray) -> KnownEdges:
        """Return the destinations `order` (int64[k]) in this order, with their edges."""
        counts = np.diff(self.indptr)[order]
        edges = entries_of(self.indptr[order], counts)
        by_edge = "neighbours", "weight", "edge_weight", "relation", "relation_sum", "relation_count"
        present = {name: array for name, array in vars(self).items() if array is not None and name != "indptr"}
        chosen = {name: array[edges if name in by_edge else order] for name, array in present.items()}
        return replace(self, indptr=indptr_of(counts), **chosen)


def _typed(indptr: np.ndarray, relation: np.ndarray | None, weight: np.ndarray | None) -> tuple[np.ndarray | None, ...]:
    """Return relation, relation_sum and relation_count of KnownEdges."""
    return relation, sums_by_relation(indptr, relation, weight), counts_by_relation(indptr, relation, weight)


class EdgeNames:
    """The edges of destinations, in the form in which they are named to owners.

    counts: int64[ranks], pairs of destination and owner by owner; destinations: int64[pairs], their places in `known`.
    homes: int64[pairs], owners of the destinations, which repeat their draws by an id alone; None if none does.
    """

    def __init__(
        self,
        known: KnownEdges,
        home: np.ndarray,
        counts: np.ndarray,
        destinations: np.ndarray,
        answers: AnswerFormat,
        homes: np.ndarray | None = None,
    ) -> None:
        """Take `home` as the owner of the source of each edge of `known`: int64[edges]."""
        self.known, self.counts, self.answers, self._home_of_edge = known, counts, answers, home
        self._ids, owner = known.destinations[destinations], np.repeat(np.arange(len(counts)), counts)
        # The owner of a destination has its list, and needs no edges beside the id.
        kept = np.ones(len(owner), bool) if homes is None else homes != owner
        self._owner, self._described = owner[kept], destinations[kept]
        self._described_counts = np.bincount(self._owner, minlength=len(counts)).astype(np.int64)

    @cached_property
    def edge_bounds(self) -> np.ndarray:
        """int64[ranks + 1]: offsets of the named edges of each owner."""
        return self._pair_indptr[indptr_of(self._described_counts)]

    @cached_property
    def _pair_indptr(self) -> np.ndarray:
        return self._found(np.empty(0, np.int64))

    def _found(self, edges: np.ndarray) -> np.ndarray:
        indptr = np.zeros(len(self._described) + 1, int)
        _edges_at(self._described, self._owner, self.known.indptr, self._home_of_edge, indptr, edges)
        return indptr

    @cached_property
    def _numbers(self) -> np.ndarray:
        """int64[ranks, 3]: pairs of each owner, those with their edges, and these edges."""
        return np.stack([self.counts, self._described_counts, np.diff(self.edge_bounds)], axis=1)

    @property
    def sizes(self) -> np.ndarray:
        """int64[ranks]: words to each owner."""
        return words_of(self.answers, *self._numbers.T)

    def exchange(
        self, communicator: Communicator, draw: Callable[[np.ndarray], tuple[np.ndarray, KnownEdges]] | None = None
    ) -> tuple[KnownEdges, np.ndarray]:
        """Name the edges; return those that other ranks name here, and each rank's number of destinations. Collective.

        Destinations are ordered by the rank that names them; their numbers are int64[ranks]. `draw` finds those of the
        ids int64[k] that belong to this rank, bool[k], and repeats their draws; present where ids go alone.
        """
        # Columns of an owner are packed side by side: one message for each owner, not one for each column.
        words, start, numbers = np.empty(int(self.sizes.sum()), self.answers.word), 0, self._numbers
        columns, values = columns_of(self.answers), self._values()
        bounds = np.concatenate((np.zeros((1, 3), np.int64), np.cumsum(numbers, axis=0)))
        for rank in range(len(numbers)):
            for group, arrays, first, end in zip(columns, values, *bounds[rank : rank + 2].tolist(), strict=True):
                start = pack(group, arrays, slice(first, end), words, start)

        # The numbers go first: receivers need the size of a message, and the places where its parts begin.
        # Where no id goes alone, all pairs have their edges.
        if draw is None:
            theirs = communicator.exchange_counts(np.ascontiguousarray(numbers[:, 1:]))[:, [0, 0, 1]]
        else:
            theirs = communicator.exchange_counts(numbers)
        expected = words_of(self.answers, *theirs.T)
        received = np.empty(int(expected.sum()), self.answers.word)
        communicator.exchange(words, self.sizes, received, expected, KIND)

        found, start = [], 0
        for of_rank in theirs.tolist():
            unpacked = []
            for group, count in zip(columns, of_rank, strict=True):
                arrays, start = unpack(group, count, received, start)
                unpacked.append(arrays)
            found.append(unpacked)
        joined = [[np.concatenate(each) for each in zip(*side, strict=True)] for side in zip(*found, strict=True)]
        (ids,), pairs, edges = joined
        counts = np.ascontiguousarray(theirs[:, 0])
        if draw is None:
            return self._known(ids, pairs, edges), counts
        own, drawn = draw(ids)
        named = self._known(ids[~own], pairs, edges)
        # Own destinations come first here, and go back to their places.
        places = np.concatenate((np.flatnonzero(own), np.flatnonzero(~own)))
        return drawn.and_then(named).taken(np.argsort(places)), counts

    def _values(self) -> list[list[np.ndarray]]:
        """Return the columns of ids, of pairs with their edges, and of edges."""
        known, at = self.known, self._described
        named = np.empty(int(self.edge_bounds[-1]), np.int64)
        # An empty array would mean: count only.
        if len(named):
            self._found(named)
        pairs = [known.sampled[at], known.degree[at], np.diff(self._pair_indptr)]
        if self.answers.weights:
            assert known.drawn_weight is not None, "weights are carried"
            assert known.weight_sum is not None, "sums come with them"
            pairs += [known.drawn_weight[at], known.weight_sum[at]]
        typed = known.relation, known.relation_sum, known.relation_count
        carried = known.neighbours, known.weight, known.edge_weight, *typed
        return [[self._ids], pairs, [each[named] for each in carried if each is not None]]

    def _known(self, destinations: np.ndarray, pairs: list[np.ndarray], edges: list[np.ndarray]) -> KnownEdges:
        sampled, degree, counts, *sums = pairs
        neighbours, *weights = edges
        weight = weights.pop(0) if self.answers.weighted else None
        edge_weight, drawn, total = (weights.pop(0), *sums) if self.answers.weights else (None, None, None)
        of_pairs = destinations, sampled, degree, indptr_of(counts)
        return KnownEdges(*of_pairs, neighbours, weight, edge_weight, drawn, total, *weights)


def columns_of(answers: AnswerFormat) -> tuple[list[Column], list[Column], list[Column]]:
    """List the columns of a pair, of a pair with edges, and of an edge.

    These are the destination; edges drawn, in-degree, edges named, two sums; source, weights, relation, its sums.
    """
    pair = [NUMBER] * 3 + [WEIGHT_SUM] * (2 * answers.weights)
    of_edge = [NUMBER, *[WEIGHT] * (answers.weighted + answers.weights)]
    if answers.relations:
        of_edge += [NUMBER, WEIGHT_SUM, *[NUMBER] * answers.weighted]
    return [NUMBER], pair, of_edge


def words_of(answers: AnswerFormat, pairs: np.ndarray, described: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the words that name `pairs`, and `edges` of the `described` ones; all are numbers, int64 of any shape."""
    of_all, of_described, of_edges = (row_words(columns, answers.word) for columns in columns_of(answers))
    return pairs * of_all + described * of_described + edges * of_edges
