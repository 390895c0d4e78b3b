"""Samplers by hop: each destination draws sources, which become destinations of the next hop.

A sampler of this kind implements `draw`. This base class numbers and de-duplicates the drawn vertices, and makes
Blocks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Self

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.sampling.block import Block, DrawnBlock, indptr_of
from leapmpi.sampling.frontier import Frontier
from leapmpi.sampling.left_out import LeftOut
from leapmpi.sampling.relation_lists import RelationDraws, relation_fanouts
from leapmpi.sampling.sampler import Drawn, Sampler, Setup
from leapmpi.sampling.workers import SamplerThreads
from leapmpi.system.counter_rng import DrawKey
from leapmpi.system.jit import compiled
from leapmpi.system.page_advice import SOON, announce

ALL = -1
"""Fan-out that takes every neighbour."""


def checked_fanouts(fanouts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the fan-outs as a tuple of ints.

    Raises ConfigError if there are none, or one is not a positive whole number or -1 (all neighbours).
    """
    if not len(fanouts):
        raise ConfigError("a fan-out is needed for each layer; give at least one, such as 10,10")
    for fanout in fanouts:
        whole = isinstance(fanout, int | np.integer) and not isinstance(fanout, bool)
        if not whole or not (fanout == ALL or 1 <= fanout < 2**63):
            raise ConfigError(f"fan-out {fanout!r} is neither a positive whole number nor -1 (all neighbours)")
    return tuple(int(fanout) for fanout in fanouts)


class HopSampler(Sampler):
    """Base of samplers that draw hop by hop. Keeps 4 bytes of working memory per vertex of the graph.

    Raises ConfigError for an invalid fan-out.
    """

    draws_from_copies = False
    """Whether draws read nothing but their lists (`drawing_from`), and names of the sources there."""

    def __init__(self, setup: Setup) -> None:
        self.topology = setup.topology
        self.threads = setup.threads
        self.fanouts = checked_fanouts(setup.fanouts)
        self._workers = SamplerThreads(setup.threads)
        self._left_out: LeftOut | None = None
        self.relations: RelationDraws | None = None
        """Lists of each hop in a typed graph."""
        self._of_lists: np.ndarray | None = None
        self.list_starts: np.ndarray | None = None
        """int64[n + 1], the first list of each destination, where lists of relations draw."""
        types, given = setup.topology.types, setup.relation_fanouts
        if types is not None:
            self.relations = RelationDraws(types, relation_fanouts(types, self.fanouts) if given is None else given)

    @cached_property
    def _frontier(self) -> Frontier:
        return Frontier(self.topology, self._workers)

    @abstractmethod
    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        """Draw for `vertices` (int64[n], with their original ids and in-degrees, int64[n]) at `hop`. Pure.

        In a typed graph `vertices` are numbers of lists, which begin at `topology.indptr` and end after `degree`
        entries; `original` are names of lists (relation_lists.py).
        """

    def fanout(self, hop: int) -> int | np.ndarray:
        """Return the fan-out of `hop`; int64[lists] where lists of relations draw."""
        return self.fanouts[hop] if self._of_lists is None else self._of_lists

    def drawing_from(
        self, topology: Topology, fanout: np.ndarray | None = None, starts: np.ndarray | None = None
    ) -> Self:
        """Return a copy that draws from other lists, with fan-outs by list, int64[lists], if given.

        It shares working memory, and serves until the next `begin`. starts: int64[n + 1], the first list of each
        destination, if they have several.
        """
        other = copy(self)
        other.topology, other._of_lists, other.list_starts = topology, fanout, starts
        return other

    def leave_out(self, key: DrawKey, edges: np.ndarray) -> None:
        back = edges[:, [1, 0, *range(2, edges.shape[1])]]
        if (types := self.topology.types) is not None:
            # The reverse of a typed edge is that of the reverse relation, where there is one.
            back[:, 2] = types.reverses[edges[:, 2]]
            back = back[back[:, 2] >= 0]
        self.leave_out_directed(key, np.concatenate([edges, back]))

    def leave_out_directed(self, key: DrawKey, edges: np.ndarray) -> None:
        """Leave out `edges` as `leave_out` does, but only in the given direction."""
        self._left_out = LeftOut(self.topology, key, edges)

    def left_out(self, key: DrawKey) -> LeftOut | None:
        """Return the edges left out of draws with `key`; None if there are none.

        Raises ValueError for a training key other than the one whose target edges were registered.
        """
        found = self._left_out
        return found if found is not None and found.holds_for(key) else None

    def drawn(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        """Draw as `draw` does, without the edges that are left out; from one list per relation in a typed graph."""
        if self.topology.in_file:
            _announce_lists(self.topology, vertices)
        left_out = self.left_out(key)
        if left_out is None:
            return self.draw_all(key, hop, vertices, original, degree)
        return left_out.draw(self, key, hop, vertices, original, degree)

    def draw_all(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        """Draw as `draw` does from the lists of `topology`, in a typed graph from one list per relation."""
        if self.relations is None:
            return self.draw(key, hop, vertices, original, degree)
        return self._by_relation(self.relations, key, hop, vertices, original)

    def _by_relation(
        self, relations: RelationDraws, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray
    ) -> Drawn:
        """Draw for `vertices` from the lists of each relation."""
        whole = self.topology
        assert whole.relation is not None, "typed topologies hold relations"
        lists = relations.lists(whole, hop, vertices, original, self._workers)
        by_list = self.drawing_from(replace(whole, indptr=lists.begin), lists.fanout, lists.starts)
        drawn = by_list.draw(key, hop, np.arange(len(lists.begin)), lists.name, lists.degree)
        relation = lists.of_edges(drawn.indptr, whole.relation.dtype)
        return Drawn(drawn.indptr[lists.starts], drawn.neighbours, drawn.weight, relation)

    def begin(self, key: DrawKey, batch: np.ndarray) -> None:
        """Prepare the draws of the iteration of `key`, whose roots over all ranks are `batch` (int64[B])."""

    def sample(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        return self._numbered(key, roots, batch, len(self.fanouts))

    def sample_unnumbered(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        if len(self.fanouts) == 1:
            return self.sample(key, roots, batch)
        # The outermost frontier is the largest, and numbering it takes longest: its readers need ids alone.
        upper = self._numbered(key, roots, batch, len(self.fanouts) - 1)
        reached = upper[-1]
        drawn = self.drawn(key, len(upper), reached.src, reached.src_original, reached.src_degree)
        last = DrawnBlock.of(
            reached.src,
            drawn.neighbours.astype(np.int64),
            self.topology,
            hop=len(upper),
            indptr=drawn.indptr,
            weight=drawn.weight,
            relation=drawn.relation,
            dst_original=reached.src_original,
            dst_degree=reached.src_degree,
        )
        return [*upper, last]

    def _numbered(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None, hops: int) -> list[Block]:
        """Return the blocks of the first `hops` of `sample`."""
        roots, frontier = self.checked_roots(roots), self._frontier
        self.begin(key, roots if batch is None else batch)

        # Destinations of a hop are all vertices reached before it.
        found = []
        try:
            frontier.add(roots)
            if frontier.count < len(roots):
                raise ValueError("roots must be distinct")
            for hop in range(hops):
                n_dst = frontier.count
                drawn = self.drawn(key, hop, *frontier.first(n_dst))
                positions = frontier.add(drawn.neighbours)
                found.append((hop, n_dst, frontier.count, positions, drawn))
            src, original, degree = (each.copy() for each in frontier.first(frontier.count))
        finally:
            frontier.clear()

        # The sources of a hop are a prefix of the frontier, so blocks share arrays.
        return [
            _block(hop, n_dst, drawn, positions, src[:n_src], original[:n_src], degree[:n_src])
            for hop, n_dst, n_src, positions, drawn in found
        ]

    def hop(self, key: DrawKey, hop: int, destinations: np.ndarray, batch: np.ndarray | None = None) -> Block:
        self.begin(key, destinations if batch is None else batch)
        frontier, n_dst = self._frontier, len(destinations)
        try:
            frontier.add(self.checked_roots(destinations))
            drawn = self.drawn(key, hop, *frontier.first(n_dst))
            positions = frontier.add(drawn.neighbours)
            src, original, degree = (each.copy() for each in frontier.first(frontier.count))
        finally:
            frontier.clear()
        return _block(hop, n_dst, drawn, positions, src, original, degree)

    def neighbours(self, key: DrawKey, hop: int, vertices: np.ndarray, batch: np.ndarray | None = None) -> Drawn:
        self.begin(key, vertices if batch is None else batch)
        return self.drawn(key, hop, *self._frontier.looked_up(vertices))

    def share_work(self, cost: np.ndarray, work: Callable[[int, int], None]) -> None:
        """Call work(first, end) on the sampler's threads, for ranges of destinations that make up [0, n).

        `cost` int64[n] is the approximate work of each destination. `work` must release the GIL.
        """
        self._workers.share_by_cost(indptr_of(cost), lambda _, first, end: work(first, end))

    def count_and_write(self, kernel: Callable, degree: np.ndarray, *arrays: object) -> Drawn:
        """Draw for destinations of in-degrees int64[n] by kernel(first, end, *arrays, indptr, out, weight).

        Called with an empty `out`, the kernel counts the edges of each destination into indptr[i + 1]. Then it writes
        them, and float32 weights, from indptr[i] on.
        """
        indptr, nothing, no_weight = np.zeros(len(degree) + 1, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
        self.share_work(degree, lambda first, end: kernel(first, end, *arrays, indptr, nothing, no_weight))
        np.cumsum(indptr, out=indptr)

        # One entry more than needed: an empty array would mean counting.
        out, weight = np.empty(indptr[-1] + 1, np.int64), np.empty(indptr[-1] + 1, np.float32)
        self.share_work(degree, lambda first, end: kernel(first, end, *arrays, indptr, out, weight))
        return Drawn(indptr, out[:-1], weight[:-1])


_ANNOUNCED = 16384
"""Edges of a list that are announced, at most: few draws read more than so many."""


def _announce_lists(topology: Topology, vertices: np.ndarray) -> None:
    """Announce that the lists of `vertices` (int64[n]) will be read: the disk then serves many reads at once."""
    vertices = np.sort(vertices)
    begin = topology.indptr[vertices]
    edges = np.minimum(topology.indptr[vertices + 1] - begin, _ANNOUNCED)
    for array in topology.list_arrays.values():
        announce(array.ctypes.data + begin * array.itemsize, edges * array.itemsize, SOON)


def _block(
    hop: int, n_dst: int, drawn: Drawn, positions: np.ndarray, src: np.ndarray, original: np.ndarray, degree: np.ndarray
) -> Block:
    """Return the block of the draws of a hop, with the `positions` of its edges among the sources."""
    return Block(hop, n_dst, src, drawn.indptr, positions, original, degree, drawn.weight, relation=drawn.relation)


def capped_indptr(degree: np.ndarray, fanout: int | np.ndarray) -> np.ndarray:
    """Return the first edge of each list with min(degree, fan-out) edges each, int64[n + 1]; -1 takes all.

    fanout: one for all, or those of typed lists, int64[n].
    """
    return indptr_of(np.minimum(degree, fanout)) if isinstance(fanout, np.ndarray) else _capped_indptr(degree, fanout)


@compiled
def _capped_indptr(degree, fanout):
    indptr = np.empty(len(degree) + 1, np.int64)
    indptr[0] = 0
    for i in range(len(degree)):
        taken = degree[i] if fanout < 0 or degree[i] < fanout else fanout
        indptr[i + 1] = indptr[i] + taken
    return indptr


@compiled
def normalise_rows(indptr, weight, degree):
    """Scale `weight` (float32[edges]) in place so that the weights of row i add up to degree[i] (int64[n]).

    The weighted sum is then the degree times a weighted mean of the drawn sources (Hajek's estimator).
    """
    for i in range(len(degree)):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += weight[e]
        for e in range(indptr[i], indptr[i + 1]):
            weight[e] = weight[e] * (degree[i] / total)
