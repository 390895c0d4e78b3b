"""The choice of `hybrid` on one rank: what each layer costs by each kind, by the rates of the machine and counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.layer_graphs import KINDS, PARTIAL, RAW, LayerInputs, Split
from leapmpi.features.shards.sparse_shard import SparseShard
from leapmpi.full_batch.dependency_choice import Caching, Prices, choose_cached, choose_kept, choose_sums
from leapmpi.full_batch.kept_sums import sums_can_be_kept
from leapmpi.full_batch.layer_by_layer import (
    EDGE_BYTES,
    VERTEX_BYTES,
    may_mix,
    reads_learned,
    refusal,
    width_across_ranks,
)
from leapmpi.full_batch.one_hop import one_hop
from leapmpi.nn.layer import costs, reads_own, sparse_cost
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.sampling.block import indptr_of
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey

_HELD = 4
"""Values held per value of a computed row: the aggregate, the sum, its activation and the gradient."""

_INDEX_BYTES = 4
"""Bytes of the number of an edge's source."""


@dataclass(frozen=True, eq=False)
class _Way:
    """A layer fed by one kind: seconds of an iteration, the split, and bytes that it takes."""

    seconds: float
    split: Split
    taken: float


class HybridChoice:
    """Chooses layer after layer, from the last one down. `room` is what caching may take, in bytes."""

    def __init__(self, ctx: RankContext, machine: MachineRates, room: float = math.inf) -> None:
        self.ctx, self.machine, self.room = ctx, machine, room
        # A limit may leave no room for them.
        self._keeps_sums = sums_can_be_kept(ctx) and math.isinf(room)
        self._ways: dict[str, _Way] = {}

    def costs(self, inputs: LayerInputs) -> np.ndarray:
        """Return seconds of an iteration for the remote inputs of a layer, by each of KINDS; infinite where it cannot
        be.
        """
        layer, learned = self.ctx.model.layers[inputs.layer], inputs.layer == 0 and reads_learned(self.ctx)
        if inputs.layer:
            self._known = self._lists(inputs)
        self._ways = {kind: self._way(inputs, kind) for kind in KINDS if not refusal(layer, kind, learned)}
        return np.array([self._ways[kind].seconds if kind in self._ways else math.inf for kind in KINDS])

    def split(self, inputs: LayerInputs, kind: str) -> Split:
        """Return the split of `kind`; what it caches leaves less room for the layers below."""
        way = self._ways[kind]
        self.room -= way.taken
        return way.split

    def _way(self, inputs: LayerInputs, kind: str) -> _Way:
        ctx, block, ranks = self.ctx, inputs.block, self.ctx.ranks
        as_rows = ctx.model.layers[inputs.layer].rows.pair is not None
        remote = np.flatnonzero(inputs.home != ctx.rank)
        owner = inputs.home[remote]

        # Each source by itself: cached, or sent as a row, projected or not.
        per_source = RAW if kind == PARTIAL else kind
        caching = self._caching(inputs, block.src[remote], self._sent(inputs.layer, per_source))
        cached, as_kind = np.zeros(block.n_src, bool), np.full(ranks, kind not in (RAW, PARTIAL))
        cached[remote] = caching.cached
        seconds = float(caching.seconds.sum())
        if not caching.cached.all():
            seconds += self._exchange
        if kind == RAW or not len(remote):
            return _Way(seconds, Split(cached, as_kind, as_rows), caching.taken)

        # A kind is one more exchange; of owners that send sums nothing is cached.
        seconds += self._exchange
        if kind == PARTIAL:
            of_sum = self._sent(inputs.layer, PARTIAL)
            pairs, mixes = self._item_counts(inputs, False), False
            if may_mix(ctx, ctx.model.layers[inputs.layer]):
                mixed = self._item_counts(inputs, True)
                # Rows among sums take further sums on both sides, about the time of another exchange.
                if mixes := (pairs - mixed).sum() * of_sum > self._exchange:
                    pairs = mixed
            as_kind = choose_sums(caching.seconds, owner, pairs, of_sum)
            replaced = as_kind[owner]
            seconds += float(pairs[as_kind].sum() * of_sum - caching.seconds[replaced].sum())
            cached[remote[replaced]] = False
            return _Way(seconds, Split(cached, as_kind, as_rows, mixes), caching.taken)
        return _Way(seconds, Split(cached, as_kind, as_rows), caching.taken)

    def _item_counts(self, inputs: LayerInputs, mixes: bool) -> np.ndarray:
        """Return int64[ranks], the items that each owner sends if sums, or the fewest sums and rows, are requested."""
        ranks, home = self.ctx.ranks, inputs.home
        items = inputs.items(home != self.ctx.rank, ranks, mixes=mixes)
        of_sums = np.bincount(items.pairs // max(1, inputs.block.n_dst), minlength=ranks)
        return of_sums + np.bincount(home[items.rows], minlength=ranks)

    def _caching(self, inputs: LayerInputs, vertices: np.ndarray, sent: float) -> Caching:
        """Return which of the remote inputs `vertices` to compute here, or to keep if they are features."""
        ctx = self.ctx
        if inputs.layer == 0:
            room = 0.0 if reads_learned(ctx) else self.room
            return choose_kept(len(vertices), sent, self._feature_bytes(), room)

        indptr, indices, present = self._known
        prices = self._prices(inputs.layer - 1)
        return choose_cached(indptr, indices, vertices, present, sent, prices, self.room, self._exchange)

    def _lists(self, inputs: LayerInputs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return where the in-neighbours of each remote input begin and what they are; and bool[n], what is here
        anyway.

        Collective where the topology is sharded: the lists of vertices of other ranks come from there.
        """
        ctx, sampler = self.ctx, self.ctx.sampler
        mine = inputs.home == ctx.rank
        own, remote = inputs.block.src[mine], inputs.block.src[~mine]
        if isinstance(sampler, ShardedSampler):
            shard = sampler.shard
            read = shard.ids_of(shard.own.in_neighbours(shard.own_numbers(own)))
            indptr, indices, *_ = one_hop(ctx).neighbours(DrawKey(PRESAMPLE, ctx.seed, 0, 0), 0, remote)
        else:
            topology = sampler.topology
            read = topology.in_neighbours(own)
            indptr, indices = indptr_of(topology.degree(remote)), topology.in_neighbours(remote)

        # What the layer below reads anyway: own inputs of this layer, and their in-neighbours.
        present = np.zeros(ctx.vertices, bool)
        present[own] = True
        present[read] = True
        first, end = ctx.local_range
        present[first:end] = True
        return indptr, indices, present

    @property
    def _exchange(self) -> float:
        """Seconds of an exchange of a layer, there and back, without its rows."""
        return 4 * self.machine.collective

    def _sent(self, layer: int, kind: str) -> float:
        """Return seconds of one row that is communicated for `layer`, there and its gradient back; and of its
        projection.
        """
        ctx, found = self.ctx, self.ctx.model.layers[layer]
        size = found.dtype.itemsize
        if layer == 0 and kind == RAW:
            return self.machine.byte * (ctx.features.sent_row_bytes + ctx.features.id_codec.id_bytes)
        seconds = 2 * self.machine.byte * width_across_ranks(ctx, found, kind) * size
        if kind == RAW and not found.linear:
            seconds += self.machine.multiply_add * costs(found, 1, 0, 0, True)[0]
        return seconds

    def _feature_bytes(self) -> int:
        """Return bytes of a feature row that is kept, and of what the first layer makes of it."""
        ctx, first = self.ctx, self.ctx.model.layers[0]
        copies = (not ctx.scatters) + (first.dropout > 0)
        projected = 0 if first.linear else 2 * first.dtype.itemsize * first.rows.width
        return ctx.features.shard.row_bytes + copies * ctx.input_row_bytes + projected

    def _new_input(self, layer: int) -> float:
        """Return seconds of one more input of a hidden `layer`: sent, or computed here too, with an average
        in-degree.
        """
        sampler, below = self.ctx.sampler, self._prices(layer - 1)
        graph = sampler.shard if isinstance(sampler, ShardedSampler) else sampler.topology
        degree = graph.edges / max(1, graph.vertices)
        computed = below.row + degree * below.edge + (1 + degree) * below.new_input
        return min(self._sent(layer, RAW), computed)

    def _prices(self, layer: int) -> Prices:
        """Return the seconds of a destination of `layer`."""
        found, unit = self.ctx.model.layers[layer], self.machine.multiply_add
        size, shard = found.dtype.itemsize, self.ctx.features.shard
        if layer == 0 and isinstance(shard, SparseShard):
            row, edge = sparse_cost(found, 1, 0, shard.mean_entries), sparse_cost(found, 0, 1, 0.0)
            source = row
        else:
            (source, _), (_, row) = costs(found, 1, 0, 0, layer > 0), costs(found, 0, 1, 0, layer > 0)
            before, after = costs(found, 0, 0, 1, layer > 0)
            edge = min(before, after) if found.linear else before
            if layer == 0 and self._keeps_sums:
                # Edges are summed up once; own rows have a product of their own.
                row, edge = row * (1 + reads_own(found)), 0
        # A new input: features are kept, but projected where sums cannot come first.
        new_input = self._new_input(layer) if layer else (0.0 if found.linear else unit * source)
        return Prices(
            row=unit * row,
            edge=unit * edge,
            new_input=new_input,
            row_bytes=size * (_HELD * found.out_dim + found.in_dim) + VERTEX_BYTES,
            edge_bytes=EDGE_BYTES + _INDEX_BYTES,
            input_bytes=VERTEX_BYTES + (self._feature_bytes() if layer == 0 else 2 * size * found.in_dim),
        )
