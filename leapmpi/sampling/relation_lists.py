"""Lists of a typed graph: a destination draws from one list for each relation, the run of its in-neighbours by it.

Samplers draw from these lists as from those of vertices. The name of a list, which keys its draws, is one word of
relation and original id: that of relation 0 is the original id, so a graph of one relation draws as a plain graph does.
Hops draw only the relations that lead towards the roots' type (graph_types.reached).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np

from leapmpi.config.sections import SamplingConfig
from leapmpi.config.setting import parse_relation_fanout
from leapmpi.dataset.graph_types import MOST_VERTICES, GraphTypes, Reached, reached
from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError, counted
from leapmpi.sampling.block import indptr_of
from leapmpi.sampling.workers import SamplerThreads
from leapmpi.system.intrinsics import prefetch
from leapmpi.system.jit import compiled

ALL_OF_LIST = np.int64(2**62)
"""Fan-out that takes every neighbour, in an array of fan-outs by list."""

_VERTEX_BITS = MOST_VERTICES.bit_length() - 1
RELATION_MASK = np.int64(-1 << _VERTEX_BITS)
"""Bits of the relation in the name of a list."""

_AHEAD = 16
"""Destinations between the prefetch of a cache line and its use."""


@compiled
def _types_of(original, bases, lists_of_type, kind, starts):
    """Write the type of each destination, and the number of its first list: starts int64[n + 1]."""
    starts[0] = 0
    for i in range(len(original)):
        t = 0
        while original[i] >= bases[t + 1]:
            t += 1
        kind[i] = t
        starts[i + 1] = starts[i] + lists_of_type[t + 1] - lists_of_type[t]


@compiled
def _place_of(relation, low, high, wanted):
    """Return the first position in relation[low:high], ascending, that is not below `wanted`; `high` without one."""
    while low < high:
        middle = (low + high) >> 1
        if np.int64(relation[middle]) < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _cut(first, end, vertices, original, indptr, relation, kind, lists_of_type, drawn, fanout, starts, lists):
    """Cut the lists of destinations first..end-1 by relation; write where each begins, its length, name and fan-out."""
    begin, degree, name, limit = lists
    for i in range(first, end):
        if i + 2 * _AHEAD < end:
            prefetch(indptr, vertices[i + 2 * _AHEAD])
        if i + _AHEAD < end:
            prefetch(relation, indptr[vertices[i + _AHEAD]])
        # Lists are sorted by relation, so each search begins where the one before has ended.
        place, stop, t = indptr[vertices[i]], indptr[vertices[i] + 1], kind[i]
        for k in range(lists_of_type[t + 1] - lists_of_type[t]):
            r, j = drawn[lists_of_type[t] + k], starts[i] + k
            begin[j] = _place_of(relation, place, stop, r)
            place = _place_of(relation, begin[j], stop, r + 1)
            degree[j] = place - begin[j]
            name[j] = original[i] | (r << _VERTEX_BITS)
            limit[j] = fanout[r]


class RelationLists(NamedTuple):
    """Lists of some destinations at a hop, destination by destination and by ascending relation."""

    starts: np.ndarray
    """int64[n + 1]: first list of each destination."""
    begin: np.ndarray
    """int64[lists]: first position of each in the topology."""
    degree: np.ndarray
    """int64[lists]."""
    name: np.ndarray
    """int64[lists]: names, in place of original ids."""
    fanout: np.ndarray
    """int64[lists]: fan-outs, ALL_OF_LIST where all in-neighbours are taken."""

    def of_edges(self, indptr: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return the relations of edges drawn by list (`indptr` int64[lists + 1]): unsigned[edges]."""
        return np.repeat((self.name >> _VERTEX_BITS).astype(dtype), np.diff(indptr))


class RelationDraws:
    """Relations and fan-outs of each hop: `fanouts` int64[hops, R], -1 for all neighbours, 0 for none."""

    def __init__(self, types: GraphTypes, fanouts: np.ndarray) -> None:
        self.bases = types.bases
        self.hops = [HopPlan.of(types, row) for row in fanouts]

    def lists(
        self, topology: Topology, hop: int, vertices: np.ndarray, original: np.ndarray, threads: SamplerThreads
    ) -> RelationLists:
        """Return the lists that `vertices` (int64[n], with their original ids) draw from at `hop`."""
        plan, n = self.hops[hop], len(vertices)
        kind, starts = np.empty(n, np.uint8), np.empty(n + 1, np.int64)
        _types_of(original, self.bases, plan.lists_of_type, kind, starts)
        begin, degree, name, limit = lists = tuple(np.empty(starts[-1], np.int64) for _ in range(4))
        given = vertices, original, topology.indptr, topology.relation, kind, *plan, starts, lists
        threads.share_by_cost(starts, lambda _, first, end: _cut(first, end, *given))
        return RelationLists(starts, begin, degree, name, limit)


class HopPlan(NamedTuple):
    """Relations that a hop draws, by the type of their destination."""

    lists_of_type: np.ndarray
    """int64[T + 1]: first entry of each type in `drawn`."""
    drawn: np.ndarray
    """int64: relations, ascending within a type."""
    fanout: np.ndarray
    """int64[R]."""

    @classmethod
    def of(cls, types: GraphTypes, fanouts: np.ndarray) -> HopPlan:
        """Return the plan of a hop with these fan-outs by relation, int64[R]."""
        drawn = np.flatnonzero(fanouts)
        ends = types.ends[drawn, 1]
        order = np.argsort(ends, kind="stable")
        counts = np.bincount(ends, minlength=len(types.vertices))
        return cls(indptr_of(counts), drawn[order], np.where(fanouts < 0, ALL_OF_LIST, fanouts))


_SHOWN = 8
"""Most relations that a message names."""


def relation_fanouts(types: GraphTypes, fanouts: tuple[int, ...], given: tuple[str, ...] = ()) -> np.ndarray:
    """Return the fan-outs by hop and relation, int64[hops, R]; 0 for relations that are not drawn.

    fanouts: those of every relation, -1 for all neighbours; given: fan-outs of some relations, as of
    `--relation-fanout`. Roots are of the schema's target, or of all types without one.
    Raises ConfigError if a pattern fits no relation, or has a wrong number of fan-outs.
    """
    found = np.repeat(np.array(fanouts, np.int64)[:, None], len(types.relations), axis=1)
    # Later patterns win where several fit a relation.
    for text in given:
        pattern, numbers = parse_relation_fanout(text, "sampling.relation_fanout")
        fits = [fnmatchcase(str(each), pattern) for each in types.relations]
        if not any(fits):
            shown, others = types.relations[:_SHOWN], len(types.relations) - _SHOWN
            more = f" and {others} others, which leapmpi-prep info lists" if others > 0 else ""
            raise ConfigError(
                f"sampling.relation_fanout: {pattern!r} fits no relation of the dataset; it has "
                f"{', '.join(map(str, shown))}{more}"
            )
        if len(numbers) not in (1, len(fanouts)):
            raise ConfigError(
                f"sampling.relation_fanout: {text!r} has {counted(len(numbers), 'fan-out')}, and --fanout has "
                f"{len(fanouts)}; "
                "give one for all hops, or one per hop"
            )
        found[:, fits] = np.array(numbers, np.int64)[:, None]
    return np.where(_reached(types, found).relations, found, 0)


def _reached(types: GraphTypes, fanouts: np.ndarray) -> Reached:
    target = types.target_number
    targets = tuple(range(len(types.vertices))) if target is None else (target,)
    return reached(types, targets, len(fanouts), fanouts != 0)


def reached_in_training(types: GraphTypes, sampling: SamplingConfig) -> Reached:
    """Return the part of the schema that training reaches from its roots. Raises ConfigError as relation_fanouts."""
    return _reached(types, relation_fanouts(types, sampling.fanout, sampling.relation_fanout))


def scoring_fanouts(types: GraphTypes, sampling: SamplingConfig, fanouts: tuple[int, ...]) -> np.ndarray:
    """Return the fan-outs by hop and relation of evaluation with `fanouts`: int64[hops, R].

    A relation that a hop leaves out in training has no weights there, and is left out again. Raises ConfigError as
    relation_fanouts.
    """
    training = relation_fanouts(types, sampling.fanout, sampling.relation_fanout)
    if fanouts == sampling.fanout:
        return training
    return np.where(training != 0, np.array(fanouts, np.int64)[:, None], 0)
