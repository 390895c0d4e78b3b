"""What travels with a model of `naive` from rank to rank: its blocks, and what its first layer has gathered so far.

Two kinds. Sums: where the first layer is linear, every rank adds its own rows' share to the sums of all destinations,
and the edges that start at its rows leave the blocks. Rows: attention weighs rows by what they hold, so projected rows
are collected on the way, and aggregated at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from leapmpi.engine.first_layer.partial_block import PartialBlockBuilder
from leapmpi.nn.tensors import BlockTensors, to_tensors
from leapmpi.plan.homes import home_of
from leapmpi.sampling.block import Block

if TYPE_CHECKING:
    from leapmpi.dataset.topology import Topology
    from leapmpi.engine.context import RankContext
    from leapmpi.nn.layer import Layer
    from leapmpi.system.counter_rng import DrawKey

RingPayload = list[np.ndarray]
"""Blocks under way, as int64 arrays: those of the first layer (vertices, counts of sampled neighbours, and what else
its kind of cargo needs), then counts and indices of every other hop, from the roots on."""


@dataclass
class RingVisit:
    """What a model finds at one rank: it reads `read` rows there, of which `make` makes its share.

    It brings `before` rows of cargo along and takes `after` on. The share is kept from the way there to the way back.
    """

    read: int
    before: int
    after: int
    make: Callable[[], Any]
    share: Any = None


class SumPayload:
    """One row of sums per destination, from the first rank to the last."""

    head = 4
    """Arrays of the first layer in a parcel: destinations, sampled and remaining neighbours of each, and these."""

    def __init__(self, ctx: RankContext) -> None:
        self.layer: Layer = ctx.model.layers[0]
        self.width = self.layer.out_dim
        first, end = (int(bound) for bound in ctx.rank_offsets[ctx.communicator.rank : ctx.communicator.rank + 2])
        self.features, self.scattered = ctx.features, ctx.scatters
        self.pieces = PartialBlockBuilder(ctx.sampler.topology, first, end, ctx.device)

    def pack(self, block: Block) -> RingPayload:
        """The arrays of the first layer."""
        counts = np.diff(block.indptr)
        return [block.dst, counts, counts, block.src[block.indices]]

    def visit(self, parcel: RingPayload, model: int, key: DrawKey | None) -> RingVisit:
        """What own rows add to the sums of `model`."""
        del model
        destinations, sampled, left, neighbours = parcel[: self.head]
        sizes, size = indptr_of(left), len(destinations)
        found = self.pieces.contribution(self.layer, self.features, sizes, neighbours, destinations, sampled)

        def added() -> torch.Tensor:
            return self.layer.partial(found.piece, found.rows(self.features, self.scattered), key)

        return RingVisit(found.read, size, size, added)

    def leave(self, parcel: RingPayload, first: int, end: int) -> RingPayload:
        """`parcel` as it goes on from the rank of vertices `first` to `end`, without the edges that start there."""
        destinations, sampled, left, neighbours = parcel[: self.head]
        away = (neighbours < first) | (neighbours >= end)
        remaining = indptr_of(away)[indptr_of(left)]
        return [destinations, sampled, np.diff(remaining), neighbours[away], *parcel[self.head :]]

    def gathered(self, parcel: RingPayload, model: int, ranks: int) -> int:
        """Rows of cargo of `model` once it has seen `ranks` ranks."""
        del model, ranks
        return len(parcel[0])

    def join(self, carried: Any, share: Any) -> Any:
        """Cargo with the share of one more rank."""
        return carried + share

    def own_gradient(self, visit: RingVisit, gradient: Any) -> Any:
        """The part of the cargo's gradient that belongs to the share of `visit`."""
        del visit
        return gradient

    def arrive(self, parcel: RingPayload, key: DrawKey | None) -> Callable[[Any], Any]:
        """How the cargo at its end becomes what the first layer's `finish` wants: it is that already."""
        del parcel, key
        return lambda carried: carried


class RowPayload:
    """One projected row per source, collected in the order of the ranks visited."""

    head = 3
    """Arrays of the first layer in a parcel: sources, sampled neighbours of each destination, and their indices."""

    def __init__(self, ctx: RankContext) -> None:
        self.layer: Layer = ctx.model.layers[0]
        self.width = self.layer.projected_width
        self.ctx = ctx

    def pack(self, block: Block) -> RingPayload:
        """The arrays of the first layer."""
        return [block.src, np.diff(block.indptr), block.indices.astype(np.int64)]

    def visit(self, parcel: RingPayload, model: int, key: DrawKey | None) -> RingVisit:
        """The rows of `model` that are at home here, after those collected before."""
        ctx = self.ctx
        mine = (model - ctx.communicator.rank) % ctx.communicator.size
        vertices, before = parcel[0][self._turns(parcel, model) == mine], self.gathered(parcel, model, mine)
        original = torch.from_numpy(ctx.sampler.topology.original_id[vertices]).to(ctx.device)
        after = before + len(vertices)
        return RingVisit(
            len(vertices),
            before,
            after,
            lambda: self.layer.projected(ctx.features.own(vertices, ctx.scatters), original, key),
        )

    def leave(self, parcel: RingPayload, first: int, end: int) -> RingPayload:
        """The whole block is needed at the end."""
        del first, end
        return parcel

    def gathered(self, parcel: RingPayload, model: int, ranks: int) -> int:
        """Rows of cargo of `model` once it has seen `ranks` ranks."""
        return int((self._turns(parcel, model) < ranks).sum())

    def join(self, carried: Any, share: Any) -> Any:
        """Cargo with the rows of one more rank."""
        return torch.cat((carried, share))

    def own_gradient(self, visit: RingVisit, gradient: Any) -> Any:
        """The part of the cargo's gradient that belongs to the rows of `visit`."""
        return gradient[visit.before :]

    def arrive(self, parcel: RingPayload, key: DrawKey | None) -> Callable[[Any], Any]:
        """How the cargo becomes what `finish` wants: rows take the order of the block's sources, and are aggregated."""
        ctx = self.ctx
        block = block_of(ctx.sampler.topology, len(ctx.sampler.fanouts) - 1, *parcel[: self.head], ctx.device)
        # The model that ends on this rank started on the one before.
        order = np.argsort(self._turns(parcel, (ctx.communicator.rank - 1) % ctx.communicator.size), kind="stable")
        place = torch.from_numpy(order).to(ctx.device)

        def aggregate(carried: Any) -> Any:
            rows = carried.new_zeros(carried.shape).index_copy(0, place, carried)
            return self.layer.from_projected(block, rows, key)

        return aggregate

    def _turns(self, parcel: RingPayload, model: int) -> np.ndarray:
        """int64[sources]: the time step at which `model` visits the home of each."""
        return (model - home_of(parcel[0], self.ctx.rank_offsets)) % self.ctx.communicator.size


def block_of(
    topology: Topology, hop: int, src: np.ndarray, counts: np.ndarray, indices: np.ndarray, device: torch.device
) -> BlockTensors:
    """The block of sources `src`, as it was before it travelled: `counts` int64[n_dst], `indices` int64[edges]."""
    names = topology.original_id[src], topology.degree(src)
    return to_tensors(Block(hop, len(counts), src, indptr_of(counts), indices.astype(np.int32), *names), device)


def indptr_of(counts: np.ndarray) -> np.ndarray:
    """int64[n + 1]: where each of n pieces starts, given how long they are."""
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    return indptr


def flat(parcel: RingPayload) -> np.ndarray:
    """The arrays of `parcel` in one, int64: their number and lengths first."""
    return np.concatenate(([len(parcel)], [len(each) for each in parcel], *parcel))


def arrays(words: np.ndarray) -> RingPayload:
    """The parcel that `flat` laid out in `words`."""
    count = int(words[0])
    return np.split(words[1 + count :], np.cumsum(words[1:count]))
