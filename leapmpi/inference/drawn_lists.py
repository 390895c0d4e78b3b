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
from leapmpi.inference.layerwise import LayerwiseInference, Round
from leapmpi.sampling.block import Block, indptr_of
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.system.counter_rng import DrawKey


@dataclass(frozen=True, eq=False)
class DrawnLists(OwnLists):
    """The lists that some vertices of this rank draw; those of all others are empty."""

    degrees: np.ndarray | None = None
    """int64[lists]: in-degrees in the graph."""

    def in_degrees(self, first: int, end: int) -> np.ndarray:
        """Return in-degrees in the graph, as OwnLists does."""
        assert self.degrees is not None, "`drawn_lists` gives them"
        return self.degrees[first:end]

    def degrees_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return in-degrees in the graph, as OwnLists does."""
        assert self.degrees is not None, "`drawn_lists` gives them"
        return self.degrees[numbers]

    def completed(self, block: Block) -> Block:
        """Add the in-degrees of its sources in the graph to `block`."""
        assert self.degrees is not None, "`drawn_lists` gives them"
        degree, listed = block.src_degree.copy(), block.src < len(self.degrees)
        degree[listed] = self.degrees[block.src[listed]]
        return replace(block, src_degree=degree)


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
    topology = replace(nothing, indptr=indptr_of(counts), indices=indices)
    return DrawnLists(topology, lists.first, lists.end, lists.bounds, lists.shard, np.diff(whole.indptr))


def drawn_inference(
    ctx: RankContext, topology: Topology, fanouts: tuple[int, ...], key: DrawKey, round: Round
) -> LayerwiseInference:
    """Make the inference of the model of `ctx` on samples by `key` of `fanouts` (from the root outward).

    Edges carry no data.
    """
    lists = own_lists(ctx, topology)
    sampler = NodeWiseSampler(lists.topology, fanouts, ctx.sampler.threads)

    def lists_of(layer: int, destinations: np.ndarray) -> OwnLists:
        return drawn_lists(lists, sampler, key, len(fanouts) - 1 - layer, destinations)

    return LayerwiseInference(ctx, topology, round=round, lists_of=lists_of)


def most_edges(ctx: RankContext, topology: Topology, fanouts: tuple[int, ...], roots: np.ndarray) -> int:
    """Count the edges that the layers of `drawn_inference` read at most on this rank for `roots` (int64). Local."""
    degrees = np.diff(topology.indptr[ctx.local_range[0] : ctx.local_range[1] + 1])
    of_hops = [degrees[roots - ctx.local_range[0]], *([degrees] * (len(fanouts) - 1))]
    pairs = zip(of_hops, fanouts, strict=True)
    return sum(int((each if fanout == ALL else np.minimum(each, fanout)).sum()) for each, fanout in pairs)
