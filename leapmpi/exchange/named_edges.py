"""Destinations that a rank names to the owners of their sources, with the edges that start there.

An owner without the list of a destination cannot repeat its draw. Where the topology is sharded, the requesting rank
therefore names the owner's drawn rows, the number of all drawn, and the factors by which shares are scaled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.dataset.topology import Topology
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

    @classmethod
    def of(cls, block: Block) -> KnownEdges:
        """Return all of a block."""
        weights = block.weight, block.edge_weight, block.drawn_weight, block.dst_weight_sum
        typed = block.relation, sums_by_relation(block.indptr, block.relation, block.weight)
        return cls(block.dst, np.diff(block.indptr), block.dst_degree, block.indptr, block.neighbours, *weights, *typed)

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
        sampled = np.diff(indptr) if sampled is None else sampled
        degree = topology.degree(destinations)
        typed = relation, sums_by_relation(indptr, relation, weight)
        return cls(destinations, sampled, degree, indptr, neighbours, weight, edge_weight, drawn, total, *typed)

    def and_then(self, others: KnownEdges) -> KnownEdges:
        """Append `others`."""
        present = {name: array for name, array in vars(self).items() if array is not None}
        joined = {name: np.concatenate((array, getattr(others, name))) for name, array in present.items()}
        joined["indptr"] = np.concatenate((self.indptr, self.indptr[-1] + others.indptr[1:]))
        return replace(self, **joined)


class EdgeNames:
    """The edges of destinations, in the form in which they are named to owners.

    counts: int64[ranks], pairs of destination and owner by owner; destinations: int64[pairs], their places in `known`.
    """

    def __init__(
        self, known: KnownEdges, home: np.ndarray, counts: np.ndarray, destinations: np.ndarray, answers: AnswerFormat
    ) -> None:
        """Take `home` as the owner of the source of each edge of `known`: int64[edges]."""
        self.known, self.counts, self.destinations, self.answers = known, counts, destinations, answers
        self._home_of_edge = home

    @cached_property
    def edge_bounds(self) -> np.ndarray:
        """int64[ranks + 1]: offsets of the named edges of each owner."""
        return self._pair_indptr[indptr_of(self.counts)]

    @cached_property
    def _pair_indptr(self) -> np.ndarray:
        return self._found(np.empty(0, np.int64))

    def _found(self, edges: np.ndarray) -> np.ndarray:
        owner, indptr = np.repeat(np.arange(len(self.counts)), self.counts), np.zeros(len(self.destinations) + 1, int)
        _edges_at(self.destinations, owner, self.known.indptr, self._home_of_edge, indptr, edges)
        return indptr

    @property
    def sizes(self) -> np.ndarray:
        """int64[ranks]: words to each owner."""
        return words_of(self.answers, self.counts, np.diff(self.edge_bounds))

    def exchange(self, communicator: Communicator) -> tuple[KnownEdges, np.ndarray]:
        """Name the edges; return those that other ranks name here, and each rank's number of destinations. Collective.

        Destinations are ordered by the rank that names them; their numbers are int64[ranks].
        """
        of_pairs, of_edges = columns_of(self.answers)
        pairs, edges = self._values()
        # Pairs and edges of an owner are packed side by side: one message for each owner, not one for each column.
        words, start = np.empty(int(self.sizes.sum()), self.answers.word), 0
        pair_bounds = indptr_of(self.counts)
        for rank in range(len(self.counts)):
            start = pack(of_pairs, pairs, slice(*pair_bounds[rank : rank + 2].tolist()), words, start)
            start = pack(of_edges, edges, slice(*self.edge_bounds[rank : rank + 2].tolist()), words, start)

        # Both counts go first: receivers need the size of a message, and the place where its edges begin.
        theirs = communicator.exchange_counts(np.stack([self.counts, np.diff(self.edge_bounds)], axis=1))
        expected = words_of(self.answers, theirs[:, 0], theirs[:, 1])
        received = np.empty(int(expected.sum()), self.answers.word)
        communicator.exchange(words, self.sizes, received, expected, KIND)

        found, start = [], 0
        for n_pairs, n_edges in theirs.tolist():
            of_rank, start = unpack(of_pairs, n_pairs, received, start)
            its_edges, start = unpack(of_edges, n_edges, received, start)
            found.append((of_rank, its_edges))
        pairs, edges = ([np.concatenate(each) for each in zip(*side, strict=True)] for side in zip(*found, strict=True))
        return self._known(pairs, edges), np.ascontiguousarray(theirs[:, 0])

    def _values(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the columns of pairs and of edges."""
        known, at = self.known, self.destinations
        named = np.empty(int(self.edge_bounds[-1]), np.int64)
        if len(named):
            self._found(named)
        pairs = [known.destinations[at], known.sampled[at], known.degree[at], np.diff(self._pair_indptr)]
        if self.answers.weights:
            assert known.drawn_weight is not None, "weights are carried"
            assert known.weight_sum is not None, "sums come with them"
            pairs += [known.drawn_weight[at], known.weight_sum[at]]
        carried = known.neighbours, known.weight, known.edge_weight, known.relation, known.relation_sum
        return pairs, [each[named] for each in carried if each is not None]

    def _known(self, pairs: list[np.ndarray], edges: list[np.ndarray]) -> KnownEdges:
        destinations, sampled, degree, counts, *sums = pairs
        neighbours, *weights = edges
        weight = weights.pop(0) if self.answers.weighted else None
        edge_weight, drawn, total = (weights.pop(0), *sums) if self.answers.weights else (None, None, None)
        relation, relation_sum = weights if self.answers.relations else (None, None)
        of_pairs = destinations, sampled, degree, indptr_of(counts)
        return KnownEdges(*of_pairs, neighbours, weight, edge_weight, drawn, total, relation, relation_sum)


def columns_of(answers: AnswerFormat) -> tuple[list[Column], list[Column]]:
    """List the columns of a pair (destination, edges drawn, in-degree, edges named, two sums), then of an edge."""
    pair = [NUMBER] * 4 + [WEIGHT_SUM] * (2 * answers.weights)
    of_edge = [NUMBER, *[WEIGHT] * (answers.weighted + answers.weights)]
    return pair, [*of_edge, NUMBER, WEIGHT_SUM] if answers.relations else of_edge


def words_of(answers: AnswerFormat, pairs: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the words that name so many `pairs` and `edges`, int64 of any shape."""
    of_pairs, of_edges = columns_of(answers)
    return pairs * row_words(of_pairs, answers.word) + edges * row_words(of_edges, answers.word)
