"""Lists of the neighbours that vertices draw at a hop, in place of all in-neighbours.

Draws are a function of key, hop and vertex (rule R1), and so is a vertex's row: computed once, it serves all batches
that would contain it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.own_lists import OwnLists, own_lists
from leapmpi.inference.chunks import ListsOf
from leapmpi.sampling.block import Block, indptr_of
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.system.counter_rng import TEST, DrawKey


@dataclass(frozen=True, eq=False)
class DrawnLists(OwnLists):
    """The lists that some vertices of this rank draw; those of all others are empty."""

    whole: OwnLists | None = None
    """The lists of all in-neighbours, which know in-degrees in the graph."""

    def in_degrees(self, first: int, end: int) -> np.ndarray:
        assert self.whole is not None, "`drawn_lists` gives them"
        return self.whole.in_degrees(first, end)

    def degrees_of(self, numbers: np.ndarray) -> np.ndarray:
        assert self.whole is not None, "`drawn_lists` gives them"
        return self.whole.degrees_of(numbers)

    def completed(self, block: Block) -> Block:
        """Add the in-degrees of its sources in the graph to `block`."""
        return replace(block, src_degree=self.degrees_of(block.src))


def drawn_lists(
    lists: OwnLists, sampler: NodeWiseSampler, key: DrawKey, hop: int, destinations: np.ndarray
) -> DrawnLists:
    """Draw neighbours of `destinations` (int64 ascending, of this rank) at `hop` with `key`, out of `lists`. Local.

    Edges carry no data. Takes 8 bytes a vertex and 4 an edge that is drawn.
    """
    whole, numbers = lists.topology, lists.numbers(destinations)
    drawn = sampler.neighbours(key, hop, numbers)
    counts = np.zeros(len(whole.indptr) - 1, np.int64)
    counts[numbers] = np.diff(drawn.indptr)
    indices = drawn.neighbours.astype(whole.indices.dtype)
    nothing = replace(whole, edge_weight=None, weight_sum=None, edge_time=None, edge_label=None)
    topology = replace(nothing, indptr=indptr_of(counts), indices=indices, relation=drawn.relation)
    return DrawnLists(topology, lists.first, lists.end, lists.bounds, lists.shard, lists)


def lists_by_layer(
    ctx: RankContext,
    topology: Topology | TopologyShard,
    fanouts: tuple[int, ...],
    key: DrawKey,
    relation_fanouts: np.ndarray | None = None,
) -> ListsOf:
    """Return the lists that layers read in inference on samples by `key` of `fanouts` (from the root outward).

    relation_fanouts: int64[hops, R] of a typed graph. Edges carry no data.
    """
    lists = own_lists(ctx, topology)
    sampler = NodeWiseSampler(lists.topology, fanouts, ctx.sampler.threads, relation_fanouts)
    return lambda layer, destinations: drawn_lists(lists, sampler, key, len(fanouts) - 1 - layer, destinations)


def lists_of_schema(ctx: RankContext, topology: Topology | TopologyShard, relation_fanouts: np.ndarray) -> ListsOf:
    """Return the lists of all in-neighbours by the relations that each hop draws: relation_fanouts int64[hops, R]."""
    key = DrawKey(TEST, ctx.seed, 0, 0)
    return lists_by_layer(ctx, topology, (ALL,) * len(relation_fanouts), key, relation_fanouts)


def most_edges(ctx: RankContext, topology: Topology, fanouts: tuple[int, ...], roots: np.ndarray) -> int:
    """Count the edges that layers by `lists_by_layer` read at most on this rank for `roots` (int64). Local."""
    degrees = np.diff(topology.indptr[ctx.local_range[0] : ctx.local_range[1] + 1])
    of_hops = [degrees[roots - ctx.local_range[0]], *([degrees] * (len(fanouts) - 1))]
    pairs = zip(of_hops, fanouts, strict=True)
    return sum(int((each if fanout == ALL else np.minimum(each, fanout)).sum()) for each, fanout in pairs)
