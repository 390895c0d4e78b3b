"""`sums`: the owner of remote neighbours adds up their raw rows and returns F numbers per destination.

This serves linear layers, whose sums need no weights. Sums can be prefetched, they serve models that differ, and no
gradient travels back. Destinations are named as for `partial` (../named_destinations.py), each once for all
micro-batches. Where the layer reads rows of destinations themselves, these are fetched as raw rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from leapmpi.exchange.layer_feed import LayerFeed, LocalFeed
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.mode import ExchangeMode, ModeMember
from leapmpi.exchange.named_destinations import NamedDestinations
from leapmpi.exchange.partial_block import LocalShare, PartialBlockBuilder
from leapmpi.exchange.raw_sums import LayerSums, SumExchange, merged, read_the_same_sums
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.nn.layer import Layer
from leapmpi.nn.rows import Rows
from leapmpi.nn.tensors import PartialBlock
from leapmpi.sampling.block import Block


class Sums(ExchangeMode):
    """The mode that fetches the sums of all micro-batches' destinations before the weights are needed."""

    order = 5
    reads_numbers = False
    serves_bounds = False
    description = "sums of raw rows for destinations with remote neighbours"

    @cached_property
    def named(self) -> NamedDestinations:
        """Exchange of named destinations; a model that reads the sums fetched for another needs none."""
        return NamedDestinations(self.ctx, self.layer.sums.holds_own)

    @classmethod
    def refusal(cls, layer: Layer) -> str | None:
        """Refuse layers whose sums depend on weights."""
        if not layer.splits:
            return "a module of your own is run as a whole, on raw rows"
        if not layer.sums.offers_shares:
            return "its first layer is not a weighted sum of raw rows that is known before the weights"
        return None

    @classmethod
    def refusal_of_rows(cls, features: FeatureFetcher) -> str | None:
        """Refuse sparse rows, whose sums are dense, and learned rows."""
        if features.sparse:
            return "sums of sparse rows are dense"
        return "owners of learned rows need the gradients of each row" if features.returned_row_bytes else None

    @classmethod
    def serves_all(cls, layers: Sequence[Layer]) -> bool:
        """Return whether all read the same sums."""
        return read_the_same_sums(layers)

    @property
    def builder(self) -> PartialBlockBuilder:
        """Builder of partial blocks of local rows."""
        return self.named.builder

    @property
    def _sum_bytes(self) -> int:
        return self.layer.in_dim * self.layer.dtype.itemsize

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Count names and sums for each pair of destination and owner, and own rows of destinations where read."""
        block, _ = self._merged(minibatch)
        pairs = self.named.pairs(block)
        total = len(pairs.destinations) * self._sum_bytes + int(self.named.naming_bytes(block, pairs).sum())
        if self.layer.sums.needs_own:
            inputs = self.ctx.features
            request = inputs.request(block.dst)
            total += len(request.remote_ids) * inputs.id_codec.id_bytes
            total += int(inputs.answer_bytes(request).sum())
        return total

    def held_bytes(self, minibatch: MiniBatch) -> int:
        """Count sums, shares on both sides of their exchange, and own rows that are copied or arrive."""
        block, _ = self._merged(minibatch)
        held = (block.n_dst + 2 * len(self.named.pairs(block).destinations)) * self._sum_bytes
        if self.layer.sums.needs_own:
            inputs = self.ctx.features
            copied = 0 if self.ctx.scatters else block.n_dst
            held += 2 * inputs.missing(block.dst) * inputs.shard.row_bytes + copied * self.ctx.input_row_bytes
        return held

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """Count a copy of the micro-batch's sums unless it is alone, and projected rows with their gradients."""
        layer, copies = self.layer, (not alone) * (1 + self.layer.sums.needs_own)
        projected = 2 * layer.rows.width * layer.dtype.itemsize
        return micro_batch.first_block.n_dst * (copies * self._sum_bytes + projected)

    def collectives(self, time_steps: int) -> int:
        """Return one: the exchange of sums, and of own rows where they are read."""
        return 1

    def request(self, minibatch: MiniBatch) -> None:
        """Name destinations, compute the sums that other ranks named here, and request own rows. Collective."""
        ctx, layer, inputs = self.ctx, self.layer, self.ctx.features
        block, places = self._merged(minibatch)
        pairs = self.named.pairs(block)
        share, _, counts = self.named.exchange(minibatch, block, pairs, layer, inputs)
        own = inputs.prepare(block.dst, ctx.scatters) if layer.sums.needs_own else None

        # Shares for others are computed first: local ones overlap their transfer.
        with ctx.phases("gather"), torch.no_grad():
            local, requested = share.block.split(block.n_dst)
            rows = self._rows(share, minibatch)
            # A forecast counts widths alone, and computes no sums.
            if ctx.communicator.carries:
                answers = self._raw_share(requested, rows)
            else:
                answers = torch.empty(requested.n_dst, layer.in_dim, dtype=layer.dtype)

        def deliver(sums: Tensor, own: Rows | None) -> None:
            minibatch.sums = LayerSums(sums, self._prefixed(own, block, minibatch), places)

        minibatch.row_exchange = SumExchange(
            communicator=ctx.communicator,
            answers=answers,
            answer_counts=counts,
            local=lambda: self._share(local, rows),
            positions=pairs.destinations,
            pair_counts=pairs.counts,
            own=own,
            deliver=deliver,
        )

    def feeds(self, minibatch: MiniBatch, number: int) -> tuple[Sequence[LayerFeed], Rows | None]:
        """Return the feed of the first layer, from the micro-batch's sums."""
        assert minibatch.sums is not None, "`request` has requested them, and the mini-batch is complete"
        sums = minibatch.sums.of(number)
        return [LocalFeed(self.ctx, self.layer, lambda rows: self.layer.sums.output(*sums))], None

    def _merged(self, minibatch: MiniBatch) -> tuple[Block, list[np.ndarray | None]]:
        return merged([each.first_block for each in minibatch.micro_batches])

    @property
    def _raw_share(self) -> Callable[[PartialBlock, Rows], Tensor]:
        share = self.layer.sums.share
        assert share is not None, "other layers are refused"
        return share

    def _rows(self, share: LocalShare, minibatch: MiniBatch) -> Rows:
        """Return the rows of `share` after prefix, in the layer's type."""
        rows = share.rows(self.ctx.features, self.ctx.scatters).to(self.layer.dtype)
        return self.layer.prefix(rows, share.block.src_original, minibatch.dropout)

    def _prefixed(self, own: Rows | None, block: Block, minibatch: MiniBatch) -> Rows | None:
        """Return the `own` rows of the destinations of `block` after prefix, in the layer's type."""
        if own is None:
            return None
        names = torch.from_numpy(block.dst_original).to(self.ctx.device)
        return self.layer.prefix(own.to(self.layer.dtype), names, minibatch.dropout)

    def _share(self, block: PartialBlock, rows: Rows) -> Tensor:
        with self.ctx.phases("gather"), torch.no_grad():
            return self._raw_share(block, rows)


MEMBER = ModeMember(Sums)
