"""`mixed`: shares as in `partial`, and projected rows where one row serves more edges than shares do.

Between a rank and an owner, each remote edge needs its source's row or its destination's share. The fewest of both are
a minimum vertex cover (../../plan/vertex_cover.py). A row counts for edges of destinations that request no share of its
owner, so that owners need not know which rows are requested.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from weakref import ref

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.known_rows import received_block
from leapmpi.exchange.feeds.partial import MixedRows, PartialFeed
from leapmpi.exchange.items import RemoteItems, fewest_items
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.mode import ModeMember
from leapmpi.exchange.modes.partial import Partial
from leapmpi.exchange.named_destinations import Pairs
from leapmpi.exchange.stage import Route, by_rank
from leapmpi.nn.layer import Layer
from leapmpi.nn.share_forms import SUM
from leapmpi.plan.homes import home_of
from leapmpi.sampling.block import Block


class Mixed(Partial):
    """Shares of destinations, with rows of sources that serve several destinations."""

    order = 2
    surcharge = 1.1
    serves_bounds = False
    description = "the fewest of partial sums of destinations and projected rows of sources, and their gradients"

    def __init__(self, ctx: RankContext) -> None:
        super().__init__(ctx)
        # Ids of sources are offset by the number of vertices, so that one list names both.
        count = int(ctx.rank_offsets[-1])
        self.id_codec = IdCodec(np.zeros(ctx.ranks, np.int64), 2 * count)
        self._last: tuple[Callable[[], Block | None], tuple[Pairs, RemoteItems] | None] = (lambda: None, None)

    @classmethod
    def refusal(cls, layer: Layer) -> str | None:
        """Refuse layers whose aggregate is not a sum of projected rows."""
        shares = layer.shares
        if layer.splits and (shares is None or shares.layout is not SUM or shares.raw_share is None):
            return "its first layer does not sum projected rows"
        return super().refusal(layer)

    @classmethod
    def order_for(cls, layer: Layer) -> int:
        return cls.order

    def items(self, block: Block) -> RemoteItems:
        """Choose the items that this rank requests for `block`. Local."""
        return self._requested(block)[1]

    def _requested(self, block: Block) -> tuple[Pairs, RemoteItems]:
        """Choose the items for `block`, and return its shares as pairs, too. Local."""
        # Bytes are predicted from the items that the step requests afterwards.
        known_of, known = self._last
        if known is None or known_of() is not block:
            known = self._chosen(block)
            self._last = ref(block), known
        return known

    def _chosen(self, block: Block) -> tuple[Pairs, RemoteItems]:
        offsets, pairs = self.ctx.rank_offsets, self.named.pairs(block)
        indptr, owner = block.indptr - pairs.here.indptr, np.repeat(np.arange(self.ctx.ranks), pairs.counts)
        # Owners of destinations add their self parts, whatever else is requested.
        forced = home_of(block.dst[pairs.destinations], offsets) == owner
        named = pairs.counts, pairs.destinations
        items = fewest_items(indptr, pairs.here.others, offsets, named, forced)
        return Pairs(items.pair_counts, items.destinations, pairs.here), items

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Count an id, a row of numbers and its gradient for each item."""
        row = 2 * self.shares.width * self.layer.dtype.itemsize
        blocks = [each.first_block for each in minibatch.micro_batches]
        if self.ctx.answers is not None:
            return super().predicted_bytes(minibatch)
        return sum(int(self.items(block).counts.sum()) for block in blocks) * (row + self.id_codec.id_bytes)

    def plan_bytes(self, block: Block) -> int:
        """Estimate as for shares alone (there are fewer), and add edges of received rows."""
        return super().plan_bytes(block) + len(self.named.pairs(block).here.others) * 12

    def feed(self, minibatch: MiniBatch, micro_batch: MicroBatch) -> PartialFeed:
        """Name destinations and sources to their owners, and draw the neighbours of destinations named here."""
        ctx, block = self.ctx, micro_batch.first_block
        if ctx.answers is not None:
            return super().feed(minibatch, micro_batch)
        with ctx.phases("sample"):
            pairs, items = self._requested(block)
        # Rows are named by numbers beyond all ids, so that one exchange names both kinds.
        count = int(ctx.rank_offsets[-1])
        named = by_rank((block.dst[pairs.destinations], items.rows + count), (pairs.counts, items.row_counts))
        foreign, foreign_counts = ctx.communicator.exchange_ids(named, items.counts, self.id_codec)

        # Requests arrive with both kinds mixed. Replies put shares of a rank before its rows, as the requester expects.
        requester, are_rows = np.repeat(np.arange(ctx.ranks), foreign_counts), foreign >= count
        share_counts = np.bincount(requester[~are_rows], minlength=ctx.ranks)
        share = self.named.answer(minibatch, block, pairs, foreign[~are_rows], self.layer, foreign[are_rows] - count)
        ctx.communicator.byte_counters.add_rows("remote", len(items.rows) + len(pairs.destinations))
        assert share.wanted is not None, "rows are named, if none"
        sent = np.arange(len(foreign))
        shares, rows = sent[: share_counts.sum()], sent[share_counts.sum() :]
        order = by_rank((shares, rows), (share_counts, foreign_counts - share_counts))

        # Items arrive in the same order: shares belong to destinations, rows to edges.
        of_rows = np.arange(len(items.rows))
        each = (pairs.counts, items.row_counts)
        received = by_rank((np.zeros(len(pairs.destinations), bool), np.ones(len(of_rows), bool)), each)
        positions = by_rank((pairs.destinations, of_rows), each)
        route = Route(block.n_dst, None, positions, items.counts, foreign_counts)
        with ctx.phases("sample"):
            edges = received_block(ctx, block, self._rows_of_edges(block, items), items.rows)
        mixed = MixedRows(share.wanted, order, received, edges)
        features = partial(share.rows, ctx.features, ctx.scatters)
        vertices = block.dst, foreign[~are_rows]
        return PartialFeed(
            ctx, self.layer, None, route, share.block, block.n_dst, features, mixed=mixed, vertices=vertices
        )

    def _rows_of_edges(self, block: Block, items: RemoteItems) -> np.ndarray:
        """Find the one of `items.rows` that serves each edge of `block`: int64[edges], -1 for others."""
        first, end = self.ctx.local_range
        remote = np.flatnonzero((block.neighbours < first) | (block.neighbours >= end))
        rows = np.full(block.edges, -1, np.int64)
        rows[remote] = items.edge_rows
        return rows


MEMBER = ModeMember(Mixed)
