"""Destinations that ranks name to the owners of their neighbours, so that these add up their own rows for them.

Sampling is pure (rule R1) and the topology is on every node, so an owner draws the same neighbours again and keeps
its own. Where the topology is sharded, the drawn edges are named too, unless the owner has the list (named_edges.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from weakref import ref

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.items import pairs_by_owner
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.exchange.named_edges import EdgeNames, KnownEdges
from leapmpi.exchange.partial_block import LocalEdges, LocalShare, PartialBlockBuilder
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.nn.layer import Layer
from leapmpi.plan.homes import home_of
from leapmpi.sampling.block import Block
from leapmpi.sampling.sharded.answer_format import AnswerFormat
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler


@dataclass(frozen=True, eq=False)
class Pairs:
    """Destinations of a block with the other ranks that own a neighbour of them, or their own row, by owner.

    here: the edges of all its destinations that start at rows of this rank.
    """

    counts: np.ndarray
    """int64[ranks]: pairs of each owner."""
    destinations: np.ndarray
    """int64[pairs]: the number of the destination in its block."""
    here: LocalEdges


class NamedDestinations:
    """Names destinations of this rank's blocks, and answers for those that others name, for a layer of `ctx`.

    If `with_owner`, a destination is named to its own owner too, where the layer reads the destination's own row.
    """

    def __init__(self, ctx: RankContext, with_owner: bool = True) -> None:
        self.ctx, self.answers, self.with_owner = ctx, ctx.answers, with_owner
        self._last: tuple[Callable[[], Block | None], Pairs | None] = (lambda: None, None)
        # Any rank may own a named destination.
        self.id_codec = IdCodec.any_id(ctx.rank_offsets)
        self.bound_codec = IdCodec.any_word(ctx.ranks)
        if isinstance(ctx.sampler, ShardedSampler):
            own, first = ctx.sampler.shard.own, ctx.sampler.shard.first
            self.builder = PartialBlockBuilder(own, *ctx.local_range, ctx.device, first)
        else:
            self.builder = PartialBlockBuilder(ctx.sampler.topology, *ctx.local_range, ctx.device)

    def pairs(self, block: Block) -> Pairs:
        """List the pairs that this rank names for `block`. Local."""
        # Bytes and memory are predicted from the pairs that the step names afterwards.
        known_of, known = self._last
        if known is None or known_of() is not block:
            known = self._pairs(block)
            self._last = ref(block), known
        return known

    def _pairs(self, block: Block) -> Pairs:
        offsets, rank = self.ctx.rank_offsets, self.ctx.rank
        here = self.builder.cut(block.indptr, block.neighbours)
        others = block.indptr - here.indptr, here.others
        counts, destinations = pairs_by_owner(block.dst, *others, offsets, rank, self.with_owner)
        return Pairs(counts, destinations, here)

    def exchange(
        self, minibatch: MiniBatch, block: Block, pairs: Pairs, layer: Layer, inputs: FeatureFetcher
    ) -> tuple[LocalShare, np.ndarray, np.ndarray]:
        """Name the destinations of `pairs` to their owners, and receive those that others name here. Collective.

        Returns the contribution of local rows to the destinations of `block`, then to those named by others; these as
        int64 ids by rank; and int64[ranks], how many of each. Rows that are read are counted.
        """
        communicator = self.ctx.communicator
        if self.answers is None:
            named = block.dst[pairs.destinations]
            foreign, counts = communicator.exchange_ids(named, pairs.counts, self.id_codec)
            bounds = None
            if block.bound is not None:
                words = block.bound[pairs.destinations].view(np.int64)
                bounds, _ = communicator.exchange_ids(words, pairs.counts, self.bound_codec)
                bounds = bounds.view(block.bound.dtype)
            with self.ctx.phases("sample"):
                theirs = self._drawn_again(minibatch, block, foreign, bounds)
        else:
            # Only owners hold the lists of destinations, so the edges are named to others.
            draw = partial(self._drawn_by_owner, minibatch, block) if self._owners_repeat_draws else None
            theirs, counts = self._names(block, pairs, self.answers).exchange(communicator, draw)
        communicator.byte_counters.add_rows("remote", len(pairs.destinations))
        return self._share(block, pairs, theirs, layer, inputs), theirs.destinations, counts

    def answer(
        self, minibatch: MiniBatch, block: Block, pairs: Pairs, foreign: np.ndarray, layer: Layer, wanted: np.ndarray
    ) -> LocalShare:
        """Return the contribution of local rows to `block` and to the destinations `foreign` named by others. Local.

        `wanted` (int64[k]) are further local vertices whose rows are read; the share holds their positions.
        """
        with self.ctx.phases("sample"):
            theirs = self._drawn_again(minibatch, block, foreign)
        return self._share(block, pairs, theirs, layer, self.ctx.features, wanted)

    def _share(
        self,
        block: Block,
        pairs: Pairs,
        theirs: KnownEdges,
        layer: Layer,
        inputs: FeatureFetcher,
        wanted: np.ndarray | None = None,
    ) -> LocalShare:
        with self.ctx.phases("sample"):
            groups = (KnownEdges.of(block), pairs.here), (theirs, self.builder.cut(theirs.indptr, theirs.neighbours))
            share = self.builder.share_of(layer, inputs, groups, self.with_owner, wanted)
        self.ctx.communicator.byte_counters.add_rows("local", share.read)
        return share

    def naming_bytes(self, block: Block, pairs: Pairs) -> np.ndarray:
        """Count the bytes that name `pairs`, with their edges where owners lack the lists: int64[ranks]. Local."""
        if self.answers is None:
            bound_bytes = 0 if block.bound is None else self.bound_codec.id_bytes
            return pairs.counts * (self.id_codec.id_bytes + bound_bytes)
        return self._names(block, pairs, self.answers).sizes * self.answers.word.itemsize

    def _names(self, block: Block, pairs: Pairs, answers: AnswerFormat) -> EdgeNames:
        """Return the edges of the destinations of `pairs`, by owner."""
        home = home_of(block.neighbours, self.ctx.rank_offsets)
        homes = None
        if self._owners_repeat_draws:
            homes = home_of(block.dst[pairs.destinations], self.ctx.rank_offsets)
        return EdgeNames(KnownEdges.of(block), home, pairs.counts, pairs.destinations, answers, homes)

    @property
    def _owners_repeat_draws(self) -> bool:
        """Whether owners of destinations repeat the draws of these in a sharded topology."""
        return isinstance(self.ctx.sampler, ShardedSampler) and self.ctx.sampler.repeats_draws

    def _drawn_by_owner(self, minibatch: MiniBatch, block: Block, named: np.ndarray) -> tuple[np.ndarray, KnownEdges]:
        """Return which of `named` (int64[k]) this rank owns, bool[k], and the edges these draw at the hop of `block`.

        Its own lists suffice.
        """
        sampler = self.ctx.sampler
        assert isinstance(sampler, ShardedSampler), "others draw from the whole topology"
        with self.ctx.phases("sample"):
            shard, own = sampler.shard, home_of(named, self.ctx.rank_offsets) == self.ctx.rank
            # A draw is a function of the vertex and the hop (rule R1), so the owner repeats it without any answer.
            numbers = shard.own_numbers(named[own])
            drawn = KnownEdges.listed(shard.own, numbers, *sampler.draw_own(minibatch.key, block.hop, numbers))
            return own, replace(drawn, destinations=named[own], neighbours=shard.ids_of(drawn.neighbours))

    def _drawn_again(
        self, minibatch: MiniBatch, block: Block, foreign: np.ndarray, bounds: np.ndarray | None = None
    ) -> KnownEdges:
        """Return the edges that destinations `foreign` (int64[k]) of other ranks draw at the hop of `block`.

        bounds: numbers[k], their bounds, where roots bound draws one by one.
        """
        if bounds is not None:
            again = self.ctx.sampler.drawing.bounded_neighbours(minibatch.key, block.hop, foreign, bounds)
            return KnownEdges.listed(self.ctx.sampler.topology, foreign, *again)
        batch = minibatch.schedule.roots if minibatch.schedule else None
        drawn = self.ctx.sampler.neighbours(minibatch.key, block.hop, foreign, batch)
        return KnownEdges.listed(self.ctx.sampler.topology, foreign, *drawn)
