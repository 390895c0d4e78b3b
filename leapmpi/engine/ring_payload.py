"""Payload of a model of `naive` from rank to rank: its blocks, and the rows or sums of its first layer so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leapmpi.dataset.topology import Topology
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.partial_block import PartialBlockBuilder
from leapmpi.nn.layer import Layer
from leapmpi.nn.tensors import BlockTensors, to_tensors
from leapmpi.plan.homes import home_of
from leapmpi.sampling.block import Block
from leapmpi.sampling.edge_lookup import with_weights
from leapmpi.sampling.hop_sampler import indptr_of
from leapmpi.system.counter_rng import DrawKey

BlockArrays = list[np.ndarray]
"""Blocks under way, as int64 arrays. The first `head` of a payload describe the first layer's block; then come counts
of sampled neighbours and their indices for every other hop, from the roots on."""


@dataclass
class RingVisit:
    """Work of a model at one rank: `compute` makes its share of the `read` rows there.

    It brings `before` gathered rows along and takes `after` on. `share` is kept between the two ways around the ring.
    """

    read: int
    before: int
    after: int
    compute: Callable[[], Tensor]
    share: Tensor | None = None


class SumPayload:
    """One row of sums per destination, from the first rank to the last.

    Arrays of the first layer: destinations, sampled and remaining neighbours of each, and the remaining neighbours.
    """

    head = 4
    """Arrays of the first layer's block."""

    adds = True
    """Whether the shares of all ranks add up; else the rows of one follow those of another."""

    def __init__(self, ctx: RankContext) -> None:
        self.ctx = ctx
        self.layer: Layer = ctx.model.layers[0]
        assert self.layer.shares is not None, "the layer offers shares"
        self.shares = self.layer.shares
        self.width = self.shares.width
        """Columns of a gathered row."""
        self.builder = PartialBlockBuilder(ctx.sampler.topology, *ctx.local_range, ctx.device)

    def pack(self, block: Block) -> BlockArrays:
        """Return the arrays of the first layer's `block`; all neighbours remain."""
        counts = np.diff(block.indptr)
        # Counts twice: fewer neighbours remain on the way, while means divide by all that were sampled.
        return [block.dst, counts, counts, block.neighbours]

    def visit(self, blocks: BlockArrays, model: int, key: DrawKey | None) -> RingVisit:
        """Return the work of `model` on local rows."""
        ctx = self.ctx
        destinations, sampled, remaining, neighbours = blocks[: self.head]
        share = self.builder.share(self.layer, ctx.features, indptr_of(remaining), neighbours, destinations, sampled)
        count = len(destinations)
        return RingVisit(
            share.read,
            count,
            count,
            lambda: self.shares.partial(share.block, share.rows(ctx.features, ctx.scatters), key),
        )

    def without_edges_of(self, blocks: BlockArrays, first: int, end: int) -> BlockArrays:
        """Return `blocks` as they go on from the home rank of vertices `first` to `end` (exclusive).

        Where the dataset's edges have weights all edges go on: means divide by the sum of the weights drawn.
        """
        if self.ctx.sampler.topology.edge_weight is not None:
            return blocks
        destinations, sampled, remaining, neighbours = blocks[: self.head]
        away = (neighbours < first) | (neighbours >= end)
        left = indptr_of(away)[indptr_of(remaining)]
        return [destinations, sampled, np.diff(left), neighbours[away], *blocks[self.head :]]

    def gathered(self, blocks: BlockArrays, model: int, ranks: int) -> int:
        """Return the number of rows that `model` has gathered once it has visited `ranks` ranks: one per
        destination.
        """
        return len(blocks[0])

    def layer_input(self, blocks: BlockArrays, key: DrawKey | None) -> Callable[[Tensor], Tensor]:
        """Return a function from all gathered rows to what the first layer's `finish` adds up, which are the sums."""
        return lambda gathered: gathered


class RowPayload:
    """One projected row per source, collected in the order of the ranks visited.

    Arrays of the first layer: sources, sampled neighbours of each destination, and their indices. Methods and
    attributes as of `SumPayload`.
    """

    head = 3
    adds = False

    def __init__(self, ctx: RankContext) -> None:
        self.ctx = ctx
        self.layer: Layer = ctx.model.layers[0]
        self.width = self.layer.rows.width

    def pack(self, block: Block) -> BlockArrays:
        """Return the whole block."""
        return [block.src, np.diff(block.indptr), block.indices.astype(np.int64)]

    def visit(self, blocks: BlockArrays, model: int, key: DrawKey | None) -> RingVisit:
        """Return the local rows that `model` reads, after those collected before."""
        ctx = self.ctx
        turn = (model - ctx.rank) % ctx.ranks
        vertices = blocks[0][self._turns(blocks, model) == turn]
        original = torch.from_numpy(ctx.sampler.topology.original_id[vertices]).to(ctx.device)
        before = self.gathered(blocks, model, turn)

        def projected() -> Tensor:
            return self.layer.rows.project(self.layer.prefix(ctx.features.local(vertices, ctx.scatters), original, key))

        return RingVisit(len(vertices), before, before + len(vertices), projected)

    def without_edges_of(self, blocks: BlockArrays, first: int, end: int) -> BlockArrays:
        """Return all of the block, which is needed at the end."""
        return blocks

    def gathered(self, blocks: BlockArrays, model: int, ranks: int) -> int:
        """Return one row per source whose home was visited."""
        return int((self._turns(blocks, model) < ranks).sum())

    def layer_input(self, blocks: BlockArrays, key: DrawKey | None) -> Callable[[Tensor], Tensor]:
        """Order the rows as the block's sources and aggregate them: float[n_dst, out]."""
        ctx = self.ctx
        sources, counts, indices = blocks[: self.head]
        hop = len(ctx.sampler.fanouts) - 1
        block = block_of(ctx.sampler.topology, hop, sources, counts, indices, ctx.device)
        # The model that ends on this rank started on the one before.
        order = np.argsort(self._turns(blocks, (ctx.rank - 1) % ctx.ranks), kind="stable")
        place = torch.from_numpy(order).to(ctx.device)

        def aggregate(gathered: Tensor) -> Tensor:
            rows = gathered.new_zeros(gathered.shape).index_copy(0, place, gathered)
            return self.layer.rows.combine(block, rows, key)

        return aggregate

    def _turns(self, blocks: BlockArrays, model: int) -> np.ndarray:
        """Return int64[sources]: the time step at which `model` visits the home of each."""
        return (model - home_of(blocks[0], self.ctx.rank_offsets)) % self.ctx.ranks


RingPayload = SumPayload | RowPayload


def block_of(
    topology: Topology, hop: int, src: np.ndarray, counts: np.ndarray, indices: np.ndarray, device: torch.device
) -> BlockTensors:
    """Return the block of sources `src`, as it was before it travelled: `counts` int64[n_dst], `indices`
    int64[edges].
    """
    names = topology.original_id[src], topology.degree(src)
    block = Block(hop, len(counts), src, indptr_of(counts), indices.astype(np.int32), *names)
    return to_tensors(with_weights(block, topology), device)


def to_words(blocks: BlockArrays) -> np.ndarray:
    """Return the arrays of `blocks` in one, int64: their number and lengths first."""
    return np.concatenate(([len(blocks)], [len(each) for each in blocks], *blocks))


def from_words(words: np.ndarray) -> BlockArrays:
    """Return the arrays that `to_words` put into `words`."""
    count = int(words[0])
    return np.split(words[1 + count :], np.cumsum(words[1:count]))
