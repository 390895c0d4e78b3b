"""`partial`: no feature row travels. The owner of remote neighbours returns their sum, already projected.

The requester names destinations only. Sampling is pure and the topology is on every node, so the owner draws the
same neighbours again, adds up those at home with it, multiplies by the first layer's weights and returns H numbers
per destination; the destination's own part comes from its home in the same way. Linear aggregation only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.engine.first_layer.base import ExchangedMode, ExchangePlan, no_residual
from leapmpi.engine.first_layer.overlap import ComputedRows, FusedRows, OverlappedRows
from leapmpi.engine.first_layer.partial_block import Contribution, PartialBlockBuilder
from leapmpi.plan.homes import home_of
from leapmpi.system.jit import compiled

if TYPE_CHECKING:
    from leapmpi.engine.minibatch import MicroBatch, MiniBatch
    from leapmpi.nn.tensors import BlockTensors
    from leapmpi.plan.traffic_model import Traffic
    from leapmpi.sampling.block import Block


@compiled
def _owners(indptr, indices, home, rank, ranks):
    """Which ranks each destination depends on: counts int64[ranks] and destinations int64, in order of rank.

    `home` is int64[n_src]; the first n_dst sources are the destinations. The own rank is left out.
    """
    n_dst = len(indptr) - 1
    last = np.full(ranks, -1, np.int64)
    counts = np.zeros(ranks, np.int64)
    total = 0
    pairs = np.empty((len(indices) + n_dst, 2), np.int64)
    for i in range(n_dst):
        for e in range(indptr[i] - 1, indptr[i + 1]):
            owner = home[i] if e < indptr[i] else home[indices[e]]
            if owner != rank and last[owner] != i:
                last[owner] = i
                counts[owner] += 1
                pairs[total, 0], pairs[total, 1] = owner, i
                total += 1
    place = np.cumsum(counts) - counts
    destinations = np.empty(total, np.int64)
    for k in range(total):
        owner = pairs[k, 0]
        destinations[place[owner]] = pairs[k, 1]
        place[owner] += 1
    return counts, destinations


class Partial(ExchangedMode):
    """The matrix of the first layer holds one row per destination, to which every rank adds its share."""

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        first, end = (int(bound) for bound in ctx.rank_offsets[ctx.communicator.rank : ctx.communicator.rank + 2])
        # A rank is asked about destinations that are at home anywhere.
        self.ranges = IdCodec.anywhere(ctx.rank_offsets)
        self.pieces = PartialBlockBuilder(ctx.sampler.topology, first, end, ctx.device)

    @staticmethod
    def refusal(model: Any) -> str | None:
        """Refuses attention, whose sums are not linear in the rows, and first layers with a residual."""
        if not model.layers[0].linear:
            return "its first layer weighs rows by what they hold, so sums cannot be taken apart"
        return no_residual(model)

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Pairs of destination and owner: an id, a sum and its gradient."""
        layer = self.ctx.model.layers[0]
        pairs = sum(int(self._depends(micro_batch.blocks[-1])[0].sum()) for micro_batch in minibatch.micro_batches)
        return pairs * (self.ranges.id_bytes + 2 * layer.out_dim * layer.bias.element_size())

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """Of each cell, destinations named to owners, their sums and the gradients; own rows are read for all ranks."""
        ctx, layer, rank = self.ctx, self.ctx.model.layers[0], self.ctx.communicator.rank
        width = layer.out_dim * layer.bias.element_size()
        first, end = ctx.rank_offsets[rank : rank + 2]
        for number, micro_batch in enumerate(minibatches[rank].micro_batches):
            counts, destinations = self._depends(micro_batch.blocks[-1])
            traffic.add_request(rank, counts, self.ranges.id_bytes, "activations", width, width)
            read = np.zeros(end - first, bool)
            for minibatch in minibatches:
                src = minibatch.micro_batches[number].blocks[-1].src
                read[src[(src >= first) & (src < end)] - first] = True
            traffic.add_rows(rank, "local", int(read.sum()))
            traffic.add_rows(rank, "remote", len(destinations))

    def ask_for(self, minibatch: MiniBatch, micro_batch: MicroBatch) -> ExchangePlan:
        """Name the destinations to the owners of their neighbours, and draw the neighbours of those named to us."""
        ctx, block = self.ctx, micro_batch.blocks[-1]
        counts, destinations = self._depends(block)
        foreign, foreign_counts = ctx.communicator.exchange_ids(block.src[destinations], counts, self.ranges)
        with ctx.phases("sample"):
            source = self._contribution(minibatch, block, foreign)
        ctx.communicator.byte_counters.add_rows("local", source.read)
        ctx.communicator.byte_counters.add_rows("remote", len(destinations))
        return ExchangePlan(
            total=block.n_dst,
            own_positions=None,
            asked_positions=destinations,
            asked_counts=counts,
            answer_counts=foreign_counts,
            source=source,
        )

    def compute(self, minibatch: MiniBatch, exchange_plan: ExchangePlan) -> Any:
        """This rank's shares: of its own destinations, then of those it was asked for."""
        source: Contribution = exchange_plan.source
        return self.ctx.model.layers[0].partial(
            source.piece, source.rows(self.ctx.features, self.ctx.scatters), minibatch.dropout
        )

    def computed(self, minibatch: MiniBatch, exchange_plan: ExchangePlan) -> ComputedRows:
        """Shares of others' destinations before those of own ones, unless both need the same projected rows."""
        source: Contribution = exchange_plan.source
        layer, rows = self.ctx.model.layers[0], source.rows(self.ctx.features, self.ctx.scatters)
        if not layer.plain_prefix or layer.projects_first(source.piece, rows):
            return FusedRows(layer.partial(source.piece, rows, minibatch.dropout), exchange_plan.own)
        own, others = source.piece.split(exchange_plan.own)
        return OverlappedRows(
            layer.partial(others, rows, minibatch.dropout), lambda: layer.partial(own, rows, minibatch.dropout)
        )

    def first_sums(self, minibatch: MiniBatch, block: BlockTensors, rows: Any) -> Any:
        """The shares add up to what is wanted."""
        return rows

    def _depends(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        communicator = self.ctx.communicator
        home = home_of(block.src, self.ctx.rank_offsets)
        return _owners(block.indptr, block.indices, home, communicator.rank, communicator.size)

    def _contribution(self, minibatch: MiniBatch, block: Block, foreign: np.ndarray) -> Contribution:
        """What own rows contribute to the block's destinations and to `foreign` ones."""
        batch = minibatch.schedule.roots if minibatch.schedule else None
        drawn = self.ctx.sampler.neighbours(minibatch.key, block.hop, foreign, batch)
        indptr = np.concatenate((block.indptr, block.indptr[-1] + drawn.indptr[1:]))
        neighbours = np.concatenate((block.src[block.indices], drawn.neighbours))
        weight = None if block.weight is None else np.concatenate((block.weight, drawn.weight))
        destinations = np.concatenate((block.dst, foreign))
        layer, features = self.ctx.model.layers[0], self.ctx.features
        return self.pieces.contribution(layer, features, indptr, neighbours, destinations, weight=weight)


MODE = Partial
