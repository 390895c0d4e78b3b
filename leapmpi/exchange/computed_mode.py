"""Base of modes in which computed rows travel, and their gradients return to where they were computed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from torch import Tensor

from leapmpi.comm.id_codec import IdCodec
from leapmpi.exchange.layer_feed import ExchangedFeed, LayerFeed
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.exchange.stage import Route
from leapmpi.features.shards.row_request import RowRequest
from leapmpi.nn.rows import Rows
from leapmpi.sampling.block import Block

NUMBER = 8
"""Bytes of an id, a position or a count in a plan."""


class ComputedRowsMode(ExchangeMode):
    """Base of modes whose rows depend on the layer's weights."""

    needs_weights = True
    overlaps = True

    @abstractmethod
    def feed(self, minibatch: MiniBatch, micro_batch: MicroBatch) -> LayerFeed:
        """Request what `micro_batch` needs of other ranks, receive their requests, and return its first layer's feed.

        Collective.
        """

    @abstractmethod
    def plan_bytes(self, block: Block) -> int:
        """Estimate the bytes of the plan for `block`, if others request as much here as this rank does there. Local."""

    def held_bytes(self, minibatch: MiniBatch) -> int:
        """Count the plans alone: no row is there before the step."""
        return sum(self.plan_bytes(each.first_block) for each in minibatch.micro_batches)

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """Count local rows, if copied, and computed rows with their gradients, for this rank and as many for others."""
        block, layer = micro_batch.first_block, self.layer
        copies = (not self.ctx.scatters) + (layer.dropout > 0)
        computed = 4 * layer.rows.width * layer.dtype.itemsize
        return block.n_src * (copies * self.ctx.input_row_bytes + computed)

    def request(self, minibatch: MiniBatch) -> None:
        minibatch.feeds = [[self.feed(minibatch, each)] for each in minibatch.micro_batches]

    def feeds(self, minibatch: MiniBatch, number: int) -> tuple[Sequence[LayerFeed], Rows | None]:
        feeds, rows = super().feeds(minibatch, number)
        blocks = self.tensors(minibatch.micro_batches[number])
        for feed in feeds:
            feed.upper_blocks = blocks
            if self.reads_numbers and isinstance(feed, ExchangedFeed):
                feed.block = blocks[-1]
        return feeds, rows

    def train(self, minibatch: MiniBatch, number: int, labels: Tensor) -> float:
        loss = super().train(minibatch, number, labels)
        self._release(minibatch.feeds[number])
        return loss

    def logits(self, minibatch: MiniBatch, number: int) -> Tensor:
        outputs = super().logits(minibatch, number)
        self._release(minibatch.feeds[number])
        return outputs

    def _release(self, feeds: Sequence[LayerFeed]) -> None:
        """Drop the blocks of a micro-batch, which take memory of the device; `feeds` makes them again. Local."""
        for feed in feeds:
            feed.upper_blocks = None
            if self.reads_numbers and isinstance(feed, ExchangedFeed):
                feed.drop_block()

    def request_rows(self, ids: np.ndarray, slots: int = 1) -> tuple[Route, np.ndarray]:
        """Return the route by which rows for distinct vertices `ids` (int64[k]) come from their owners. Collective.

        With int64: the local ones of `ids`, then those that other ranks request here. Where a vertex has several rows,
        in `slots`, id x slots + slot names one.
        """
        ctx = self.ctx
        # Ids of slots are as far apart as vertices have slots, so owners are found by scaled offsets.
        request = RowRequest(ids, ctx.rank_offsets * slots, ctx.rank)
        requested, counts = ctx.communicator.exchange_ids(
            request.remote_ids, request.remote_counts, self.codec_of_slots(slots)
        )
        route = Route(len(ids), request.local_positions, request.remote_positions, request.remote_counts, counts)
        return route, np.concatenate((request.local_ids, requested))

    def codec_of_slots(self, slots: int) -> IdCodec:
        """Return the codec of ids of rows. Local."""
        return self.ctx.features.id_codec if slots == 1 else IdCodec.home_ranks(self.ctx.rank_offsets * slots)

    def features_of(self, ids: np.ndarray) -> Callable[[], Rows]:
        """Return a function that gathers the feature rows of local vertices `ids` (int64[k]) once read. Local."""
        return partial(self.ctx.features.local, ids, self.ctx.scatters)
