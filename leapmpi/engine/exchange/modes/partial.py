"""`partial`: no row travels. The owner of remote neighbours returns their aggregate, already projected.

The requester names destinations only. Sampling is pure (rule R1) and the topology is on every node, so the owner draws
the same neighbours again, aggregates those that lie with it, and returns H numbers per destination. Where the topology
is sharded, the requester names the drawn edges too (../named_edges.py). How shares of several owners combine is the
layer's `partial_form`: sums add up, of maxima the largest counts.

Where messages depend on their destination (`Layer.sent_width`), the owner first requests what it needs of the
destinations from their homes: once for each, whoever named it. The gradients of that travel back last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from torch import Tensor

from leapmpi.comm.id_codec import IdCodec
from leapmpi.engine.context import RankContext
from leapmpi.engine.exchange.computed_rows import ComputedApart, ComputedRows, ComputedRowsMode, ExchangePlan
from leapmpi.engine.exchange.named_edges import EdgeNames, KnownEdges
from leapmpi.engine.exchange.partial_block import LocalShare, PartialBlockBuilder
from leapmpi.engine.minibatch import MicroBatch, MiniBatch
from leapmpi.features.row_exchange import RowRequest
from leapmpi.nn.layer import Layer
from leapmpi.nn.shares.combination import Combination
from leapmpi.nn.shares.partial_form import SUM, PartialForm
from leapmpi.nn.tensors import BlockTensors
from leapmpi.plan.homes import home_of
from leapmpi.plan.traffic_model import Traffic
from leapmpi.sampling.block import Block
from leapmpi.sampling.sharded.answer_format import AnswerFormat
from leapmpi.sampling.sharded.remote_lists import KIND
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.system.jit import compiled


@compiled
def _homes(src, rank_offsets):
    """What `home_of` gives, as int32[n_src]."""
    home = np.empty(len(src), np.int32)
    for k in range(len(src)):
        low, high = 0, len(rank_offsets) - 1
        while high - low > 1:
            middle = (low + high) >> 1
            if rank_offsets[middle] <= src[k]:
                low = middle
            else:
                high = middle
        home[k] = low
    return home


@compiled
def _owners(indptr, indices, src, rank_offsets, rank):
    """Which other ranks each destination depends on, for its neighbours or itself, in order of rank.

    `src` is int64[n_src]; the first n_dst sources are the destinations. Returns int64[ranks], pairs by owner, and
    int64[pairs], the destination of each.
    """
    home, ranks, n_dst = _homes(src, rank_offsets), len(rank_offsets) - 1, len(indptr) - 1
    # The last destination that was noted for an owner: each pair is noted once.
    last, counts, place = np.empty(ranks, np.int64), np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
    last[:] = -1
    total = 0
    pairs = np.empty((len(indices) + n_dst, 2), np.int64)
    for i in range(n_dst):
        # The destination itself comes before its edges.
        for e in range(indptr[i] - 1, indptr[i + 1]):
            owner = home[i] if e < indptr[i] else home[indices[e]]
            if owner != rank and last[owner] != i:
                last[owner] = i
                counts[owner] += 1
                pairs[total, 0], pairs[total, 1] = owner, i
                total += 1
    # Sort the pairs by owner, stably.
    for owner in range(1, ranks):
        place[owner] = place[owner - 1] + counts[owner - 1]
    destinations = np.empty(total, np.int64)
    for k in range(total):
        owner = pairs[k, 0]
        destinations[place[owner]] = pairs[k, 1]
        place[owner] += 1
    return counts, destinations


@compiled
def _fill_neighbours(src, indices, drawn, out):
    """The neighbours src[indices] of a block, then `drawn` ones."""
    edges = len(indices)
    for e in range(edges):
        out[e] = src[indices[e]]
    for e in range(len(drawn)):
        out[edges + e] = drawn[e]


@dataclass
class _Requests:
    """Destinations of a block that this rank requests shares of, by owner; int64 arrays.

    counts[ranks]: pairs of each owner; destinations[pairs]: number of the destination; row_counts[ranks] and
    positions[rows]: rows that each owner returns, and where in the layer's matrix each belongs.
    """

    counts: np.ndarray
    destinations: np.ndarray
    row_counts: np.ndarray
    positions: np.ndarray


def _read_at(blocks: Sequence[Block], rank_offsets: np.ndarray) -> list[int]:
    """How many distinct sources of `blocks` are at home on each rank; rank_offsets: int64[ranks + 1]."""
    read = np.zeros(int(rank_offsets[-1]), bool)
    for block in blocks:
        read[block.src] = True
    return [int(np.count_nonzero(read[first:end])) for first, end in pairwise(rank_offsets)]


class Partial(ComputedRowsMode):
    """The matrix of the layer holds what every rank's share of each destination combines to."""

    order = 1
    description = "projected partial sums of destinations with neighbours elsewhere and their gradients"

    def __init__(self, ctx: RankContext, layer: int = 0) -> None:
        super().__init__(ctx, layer)
        # Requests name destinations whose home is any rank.
        self.id_codec = IdCodec.any_id(ctx.rank_offsets)
        sampler = ctx.sampler
        if isinstance(sampler, ShardedSampler):
            own, first = sampler.shard.own, sampler.shard.first
            self.builder = PartialBlockBuilder(own, *ctx.local_range, ctx.device, first)
        else:
            self.builder = PartialBlockBuilder(sampler.topology, *ctx.local_range, ctx.device)

    @classmethod
    def refusal(cls, layer: Layer) -> str | None:
        """Refuses layers without a partial form, such as attention, and layers with a residual."""
        if layer.splits and "edge_features" in layer.edge_data:
            return "its first layer reads features of edges, which lie with their destinations"
        # Sums can be taken apart only where projecting and summing commute; a sub-class may have changed that.
        if layer.splits and (layer.partial_form is None or (layer.partial_form is SUM and not layer.linear)):
            return "its first layer weighs rows by what they hold, so sums cannot be taken apart"
        return super().refusal(layer)

    @classmethod
    def order_for(cls, layer: Layer) -> int:
        """Sums come first; what takes more work to combine than to aggregate comes last."""
        separate = layer.partial_form is not None and layer.partial_form.separate_self
        return cls.order + 3 * separate

    @property
    def form(self) -> PartialForm:
        """How shares of the layer are laid out and combined."""
        assert self.layer.partial_form is not None
        return self.layer.partial_form

    @property
    def combination(self) -> type[Combination]:
        return self.form.combination

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Pairs of destination and owner: an id, and shares with their gradients.

        What destinations send first is counted for every rank that names them, as if owners asked for each: no less
        than travels.
        """
        size, total = self.layer.bias.element_size(), 0
        row, sent = 2 * self.layer.partial_width * size, 2 * self.layer.sent_width * size
        for micro_batch in minibatch.micro_batches:
            block = micro_batch.block(self.number)
            found = self._requests(block)
            total += len(found.positions) * row + int(self._naming_bytes(block, found).sum())
            if sent:
                home = home_of(block.src, self.ctx.rank_offsets)
                owner, destination = np.divmod(self._pairs_with_edges(block, home), block.n_dst)
                total += int((home[destination] != owner).sum()) * (self._inputs_id_bytes + sent)
        return total

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """Destinations named to owners, their shares and the gradients; local rows are read for all ranks."""
        rank, layer = self.ctx.rank, self.layer
        width = layer.partial_width * layer.bias.element_size()
        for number, micro_batch in enumerate(minibatches[rank].micro_batches):
            block = micro_batch.block(self.number)
            requests = self._requests(block)
            if self.ctx.answers is None:
                traffic.add_request(rank, requests.counts, self.id_codec.id_bytes, "activations", 0)
            else:
                traffic.add_naming(rank, KIND, self._naming_bytes(block, requests), 0 * requests.counts, counted=2)
            traffic.add_exchange(rank, requests.row_counts, "activations", width)
            if layer.sent_width:
                # What destinations of any rank's block send, which have a neighbour here.
                named = [self._with_edges_here(each.micro_batches[number].block(self.number)) for each in minibatches]
                request = RowRequest(np.unique(np.concatenate(named)), self.ctx.rank_offsets, rank)
                sent = layer.sent_width * layer.bias.element_size()
                traffic.add_request(rank, request.remote_counts, self._inputs_id_bytes, "activations", sent, sent)
            traffic.add_rows(rank, "remote", len(requests.destinations))
            # Which of their rows the ranks read for all blocks: counted once for all.
            if rank == 0:
                blocks = [each.micro_batches[number].block(self.number) for each in minibatches]
                for owner, count in enumerate(_read_at(blocks, self.ctx.rank_offsets)):
                    traffic.add_rows(owner, "local", count)

    def plan_exchange(self, minibatch: MiniBatch, micro_batch: MicroBatch) -> ExchangePlan:
        """Name the destinations to the owners of their neighbours, and draw the neighbours of those named to us."""
        # Name the destinations; learn which destinations other ranks name.
        communicator, block = self.ctx.communicator, micro_batch.block(self.number)
        requests = self._requests(block)
        if self.ctx.answers is None:
            foreign, foreign_counts = communicator.exchange_ids(
                block.src[requests.destinations], requests.counts, self.id_codec
            )
            # Draw the neighbours of both again, and keep the edges that start here.
            with self.ctx.phases("sample"):
                share = self._local_share(minibatch, block, foreign)
        else:
            # Nobody but their owners has the lists of destinations: their edges are named too.
            known, foreign_counts = self._names(block, requests, self.ctx.answers).exchange(communicator)
            foreign, inputs = known.destinations, self.ctx.inputs(self.number)
            share = self.builder.share_of(self.layer, inputs, KnownEdges.of(block).and_then(known))
        communicator.byte_counters.add_rows("local", share.read)
        communicator.byte_counters.add_rows("remote", len(requests.destinations))
        plan = ExchangePlan(
            total=block.n_dst,
            local_positions=None,
            remote_positions=requests.positions,
            remote_counts=requests.row_counts,
            answer_counts=foreign_counts,
            source=share,
        )
        if self.form.separate_self:
            self._lay_out_self_parts(plan, share, foreign_counts)
        if self.layer.sent_width:
            # Request what destinations with a neighbour here send, each once.
            with_edges = np.flatnonzero((share.block.edges.counts > 0).cpu().numpy())
            named = np.concatenate((block.dst, foreign))[with_edges]
            distinct, numbers = np.unique(named, return_inverse=True)
            plan.first, share.sent = self.request_rows(distinct), (with_edges, numbers)
        return plan

    def computed_first(self, minibatch: MiniBatch, plan: ExchangePlan) -> ComputedRows:
        rows = self.layer.prefix(*self.local_rows(plan.source), minibatch.dropout)
        return ComputedRows(self.layer.project_sent(rows), plan.local_count)

    def computed(self, minibatch: MiniBatch, plan: ExchangePlan, first: Tensor | None) -> ComputedRows:
        """Shares of requested destinations before those of local ones, unless both need the same projected rows."""
        share: LocalShare = plan.source
        layer, rows, block = self.layer, share.rows(self.ctx.inputs(self.number), self.ctx.scatters), share.block
        if first is not None and share.sent is not None:
            with_edges, numbers = map(self._on_device, share.sent)
            sent = first.new_zeros(block.n_dst, first.shape[1])
            block = replace(block, sent=sent.index_copy(0, with_edges, first.index_select(0, numbers)))
        if share.order is None:
            steps = layer.partial_steps(block, plan.local_count, rows, minibatch.dropout)
            if steps is not None:
                return ComputedApart(*steps)
        shares = layer.partial(block, rows, minibatch.dropout)
        ordered = shares if share.order is None else shares.index_select(0, self._on_device(share.order))
        return ComputedRows(ordered, plan.local_count)

    def first_output(self, minibatch: MiniBatch, block: BlockTensors, rows: Tensor) -> Tensor:
        return self.layer.finish(*self.layer.from_partial(block, rows), None)

    def _requests(self, block: Block) -> _Requests:
        """What this rank requests for `block`. Local."""
        counts, destinations = _owners(block.indptr, block.indices, block.src, self.ctx.rank_offsets, self.ctx.rank)
        if not self.form.separate_self:
            return _Requests(counts, destinations, counts, destinations)

        # A share from every owner of a neighbour, a self part from the home of the destination.
        home, owner = home_of(block.src, self.ctx.rank_offsets), np.repeat(np.arange(self.ctx.ranks), counts)
        with_edges = np.isin(owner * block.n_dst + destinations, self._pairs_with_edges(block, home))
        is_home = home[destinations] == owner
        places = self._places(destinations, block.n_dst)
        rows = [(with_edges, place) for place in places[:-1]] + [(is_home, places[-1])]
        positions, row_counts = _in_order_of_ranks(owner, rows, self.ctx.ranks)
        return _Requests(counts, destinations, row_counts, positions)

    def _pairs_with_edges(self, block: Block, home: np.ndarray) -> np.ndarray:
        """Distinct pairs of an owner and the number of a destination that has neighbours there: owner x n_dst + number.

        int64, ascending; `home` is int64[n_src].
        """
        of_edge = np.repeat(np.arange(block.n_dst), np.diff(block.indptr))
        return np.unique(home[block.indices] * block.n_dst + of_edge)

    def _with_edges_here(self, block: Block) -> np.ndarray:
        """The destinations of `block` that have a neighbour on this rank: int64 ids."""
        first, end = self.ctx.local_range
        sources = block.src[block.indices]
        of_edge = np.repeat(np.arange(block.n_dst), np.diff(block.indptr))
        return block.dst[np.unique(of_edge[(sources >= first) & (sources < end)])]

    @property
    def _inputs_id_bytes(self) -> int:
        return self.ctx.inputs(self.number).id_codec.id_bytes

    def _names(self, block: Block, requests: _Requests, answers: AnswerFormat) -> EdgeNames:
        """The edges of the requested destinations, by owner."""
        home = home_of(block.src, self.ctx.rank_offsets)
        return EdgeNames(block, home, requests.counts, requests.destinations, answers)

    def _naming_bytes(self, block: Block, requests: _Requests) -> np.ndarray:
        """int64[ranks]: what naming the requested destinations takes, with their edges where owners lack the lists."""
        answers = self.ctx.answers
        if answers is None:
            return requests.counts * self.id_codec.id_bytes
        return self._names(block, requests, answers).sizes * answers.word.itemsize

    def _places(self, destinations: np.ndarray, n_dst: int) -> list[np.ndarray]:
        """Where the rows of shares of `destinations` belong in the matrix of a block, and at last their self parts."""
        return [destinations + n_dst * number for number in range(self.form.share_rows + 1)]

    def _local_share(self, minibatch: MiniBatch, block: Block, foreign: np.ndarray) -> LocalShare:
        """What local rows contribute to the block's destinations and to `foreign` ones."""
        batch = minibatch.schedule.roots if minibatch.schedule else None
        drawn = self.ctx.sampler.neighbours(minibatch.key, block.hop, foreign, batch)
        indptr = np.concatenate((block.indptr, block.indptr[-1] + drawn.indptr[1:]))
        neighbours = np.empty(indptr[-1], np.int64)
        _fill_neighbours(block.src, block.indices, drawn.neighbours, neighbours)
        weight = None
        if block.weight is not None:
            assert drawn.weight is not None, "a sampler weights the edges of all destinations or of none"
            weight = np.concatenate((block.weight, drawn.weight))
        destinations = np.concatenate((block.dst, foreign))
        return self.builder.share(
            self.layer, self.ctx.inputs(self.number), indptr, neighbours, destinations, weight=weight
        )

    def _lay_out_self_parts(self, plan: ExchangePlan, share: LocalShare, foreign_counts: np.ndarray) -> None:
        """Put the rows of `Layer.partial`, shares and then self parts, in the order in which they are used."""
        n_dst, n_all = plan.total, share.block.n_dst
        local = share.block.local[0].cpu().numpy()
        mine, foreign = local[local < n_dst], local[local >= n_dst]
        numbers = range(self.form.share_rows)

        # Local rows: all shares, and the self parts of destinations that live here.
        self_rows = n_all * len(numbers) + np.arange(len(local))
        plan.total = n_dst * (len(numbers) + 1)
        plan.local_positions = np.concatenate((np.arange(n_dst * len(numbers)), n_dst * len(numbers) + mine))
        first = [n_all * number + np.arange(n_dst) for number in numbers]

        # Answers, by requesting rank: shares where an edge starts here, then self parts.
        requester = np.repeat(np.arange(len(foreign_counts)), foreign_counts)
        with_edges = (share.block.edges.counts[n_dst:] > 0).cpu().numpy()
        lives_here = np.zeros(n_all - n_dst, bool)
        lives_here[foreign - n_dst] = True
        row_of_self = np.zeros(n_all - n_dst, np.int64)
        row_of_self[foreign - n_dst] = self_rows[len(mine) :]
        rows = [(with_edges, n_all * number + np.arange(n_dst, n_all)) for number in numbers]
        answers, plan.answer_counts = _in_order_of_ranks(
            requester, [*rows, (lives_here, row_of_self)], len(foreign_counts)
        )
        share.order = np.concatenate((*first, self_rows[: len(mine)], answers))


def _in_order_of_ranks(
    rank: np.ndarray, kinds: Sequence[tuple[np.ndarray, np.ndarray]], ranks: int
) -> tuple[np.ndarray, np.ndarray]:
    """For each rank in turn, and each of `kinds`, (has, values), in turn, the values where `has`.

    Arrays are of equal length, `rank` ascending. Returns int64 values and int64[ranks], how many of each rank.
    """
    values = np.concatenate([values[has] for has, values in kinds])
    ranks_of = np.concatenate([rank[has] for has, _ in kinds])
    order = np.argsort(ranks_of, kind="stable")
    return values[order], np.bincount(ranks_of, minlength=ranks).astype(np.int64)


MODE = Partial
