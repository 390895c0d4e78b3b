"""`partial`: no row travels. The owner of remote neighbours returns their aggregate, already projected.

The requester names destinations only (../named_destinations.py), and the owner returns H numbers for each. The layer's
`ShareForm.layout` combines shares of several owners: sums add up, and the largest of maxima counts.

Where messages depend on their destination (`ShareForm.sent_width`), the owner of sources first requests numbers of the
destinations from their owners: once for each, whoever named it. Their gradients travel back last.
Where each relation has a softmax of its own, logarithms of its sums cross ranks before shares (../split_softmax.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from weakref import ref

import numpy as np
import torch

from leapmpi.exchange.computed_mode import NUMBER, ComputedRowsMode
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.partial import PartialFeed, SentFirst
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.mode import ModeMember
from leapmpi.exchange.named_destinations import NamedDestinations, Pairs
from leapmpi.exchange.partial_block import LocalShare, PartialBlockBuilder, destinations_of
from leapmpi.exchange.read_columns import expected_share
from leapmpi.exchange.split_softmax import Runs, SplitGroups, SplitSoftmax
from leapmpi.exchange.stage import Route
from leapmpi.nn.layer import Layer
from leapmpi.nn.layer_forms import ShareForm
from leapmpi.nn.share_forms import SUM, PartialForm
from leapmpi.nn.tensors import PartialBlock, to_tensors
from leapmpi.plan.homes import home_of
from leapmpi.sampling.block import Block


@dataclass
class _Requests:
    """Destinations of a block whose shares this rank requests, by owner.

    row_counts int64[ranks]: rows that each owner returns; positions int64[rows]: the place of each in the layer's
    matrix.
    """

    pairs: Pairs
    row_counts: np.ndarray
    positions: np.ndarray


class Partial(ComputedRowsMode):
    """The mode in which the layer's matrix combines the shares of every rank for each destination."""

    order = 1
    reads_numbers = False
    description = "projected partial sums of destinations with remote neighbours and their gradients"

    def __init__(self, ctx: RankContext) -> None:
        super().__init__(ctx)
        # A learned row moves in every iteration whose block holds it, whatever form the layer's input takes.
        self.named = NamedDestinations(ctx, self.shares.reads_own or ctx.features.returned_row_bytes > 0)
        self._split: tuple[Callable[[], Block | None], SplitGroups | None] = (lambda: None, None)

    @classmethod
    def refusal(cls, layer: Layer) -> str | None:
        """Refuse layers without a partial form, such as users' own, and layers with a residual."""
        if layer.splits and "edge_features" in layer.edge_data:
            return "its first layer reads features of edges, which the owners of destinations hold"
        # Sums can be taken apart only where projecting and summing commute; a sub-class may have changed that.
        if layer.splits and (layer.shares is None or (layer.shares.layout is SUM and not layer.linear)):
            return "its first layer weighs rows by what they hold, so sums cannot be taken apart"
        return super().refusal(layer)

    @classmethod
    def offered_to_auto(cls, layer: Layer) -> bool:
        """Leave shares of attention to users who name the mode: they take 1.4 times the work of projected rows."""
        return layer.shares is None or not layer.shares.layout.by_attention

    def collectives(self, time_steps: int) -> int:
        """Count those of terms, logarithms and totals, too, where softmaxes are over edges of several owners."""
        return super().collectives(time_steps) * (4 if self.shares.log_width else 1)

    @classmethod
    def order_for(cls, layer: Layer) -> int:
        """Place sums first, and forms that take more work to combine than to aggregate last."""
        separate = layer.shares is not None and layer.shares.layout.separate_self
        return cls.order + 3 * separate

    @property
    def builder(self) -> PartialBlockBuilder:
        """Builder of partial blocks of local rows."""
        return self.named.builder

    @property
    def form(self) -> PartialForm:
        """Layout of the layer's shares, and the rule that combines them."""
        return self.shares.layout

    @property
    def shares(self) -> ShareForm:
        """Shares of the layer."""
        assert self.layer.shares is not None, "other layers are refused"
        return self.layer.shares

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Count an id, and shares with their gradients, for each pair of destination and owner.

        Numbers that destinations send first are counted for every rank that names them, as if each owner requested
        them alone: an upper bound. Logarithms and totals of split softmaxes go both ways, and so do their gradients.
        """
        # Packed rows are shorter by an expected factor, since their columns are known only within the step.
        size, total = self.layer.dtype.itemsize, 0
        row, sent = 2 * self.shares.width * size, 2 * self.shares.sent_width * size
        row = round(row * expected_share(self.ctx, self.layer, True))
        for micro_batch in minibatch.micro_batches:
            block = micro_batch.first_block
            found = self._requests(block)
            total += len(found.positions) * row + int(self.named.naming_bytes(block, found.pairs).sum())
            total += self._sent_count(block) * (
                self.codec_of_slots(self.shares.slots).id_bytes + self._name_bytes + sent
            )
            if self.shares.log_width:
                total += self._split_groups(block).remote(self.ctx.rank) * 4 * self.shares.log_width * size
        return total

    def _sent_count(self, block: Block) -> int:
        """Count the rows that destinations of `block` send to owners, before these share them. Local."""
        if self.shares.slot_of is not None:
            return self._split_groups(block).away
        if not self.shares.sent_width:
            return 0
        home = home_of(block.dst, self.ctx.rank_offsets)
        owner, destination = np.divmod(self._pairs_with_edges(block), block.n_dst)
        return int((home[destination] != owner).sum())

    def plan_bytes(self, block: Block) -> int:
        """Estimate a partial block of own and named destinations, with a list of rows that are not read in place."""
        found, edges, inputs = self._requests(block), block.indices.nbytes, self.ctx.features
        named = block.n_dst + len(found.pairs.destinations)
        numbers = 3 * named + 2 * block.n_dst + len(found.positions)
        if not self.builder.suit_in_place(self.layer, inputs, block.edges, named):
            numbers += 3 * block.n_src
        if self.form.separate_self:
            # Positions of rows, and their order.
            numbers += 2 * (self.form.share_rows + 1) * block.n_dst + len(found.positions)
        if self.shares.sent_width:
            # Numbers that destinations send, and their exchange.
            numbers += 4 * named
        if self.shares.log_width:
            # Groups by owner, and those of others with their edges.
            numbers += 4 * len(self._split_groups(block).groups)
        return edges + NUMBER * numbers

    def feed(self, minibatch: MiniBatch, micro_batch: MicroBatch) -> PartialFeed:
        """Name the destinations to the owners of their neighbours, and draw the neighbours of those named here."""
        ctx, block = self.ctx, micro_batch.first_block
        requests = self._requests(block)
        share, foreign, foreign_counts = self.named.exchange(minibatch, block, requests.pairs, self.layer, ctx.features)
        route = Route(block.n_dst, None, requests.positions, requests.row_counts, foreign_counts)
        # Self parts come from another owner than most shares, so they are rows of their own.
        order, first = None, None
        if self.form.separate_self:
            route, order = self._with_self_parts(route, share, foreign_counts)
        # What destinations send is requested here: its ids need no weights, so they travel ahead of the step.
        runs = Runs.of(share.block) if self.shares.log_width else None
        if self.shares.sent_width:
            destinations = np.concatenate((block.dst, foreign))
            first = self._sent_first(share.block, destinations, runs)
            if self.layer.attention_dropout:
                share.block = self._with_names(share.block, destinations, first)
        features = partial(share.rows, ctx.features, ctx.scatters)
        named = block.dst, foreign
        # A term of the destination's own is added by its rank alone: owners would add it once each.
        own = softmax = None
        if self.shares.added is not None:
            read = to_tensors if self.shares.added_by_edges else destinations_of
            own = read(block, ctx.device)
        if runs is not None:
            wanted = self._split_groups(block)
            softmax = SplitSoftmax(ctx, self.shares.log_width, wanted, runs, block.n_dst, foreign_counts)
        return PartialFeed(
            ctx, self.layer, None, route, share.block, block.n_dst, features, order, first, None, named, own, softmax
        )

    def _sent_first(self, share: PartialBlock, destinations: np.ndarray, runs: Runs | None) -> SentFirst:
        """Request what `destinations` (int64[n], ids) with edges in `share` send; with `runs` for each. Collective.

        Several ranks may name one destination: its row is requested once.
        """
        slots, of_slots = self.shares.slots, None
        if runs is None:
            # A destination without an edge here is read by nobody, so its row stays where it is.
            readers = np.flatnonzero((share.edges.counts > 0).cpu().numpy())
            ids = destinations[readers]
        else:
            assert self.shares.slot_of is not None, "destinations send something for each relation"
            readers = runs.destinations
            of_relation = self.shares.slot_of[runs.relations]
            assert (of_relation >= 0).all(), "samplers draw relations that the layer reads"
            ids = destinations[readers] * slots + of_relation
        distinct, numbers = np.unique(ids, return_inverse=True)
        route, rows = self.request_rows(distinct, slots)
        vertices = rows // slots
        original = self.ctx.sampler.original_ids(vertices)
        if runs is not None:
            # Relations of one vertex read the same row, so the row is made once and multiplied for each.
            vertices, which, number = np.unique(vertices, return_index=True, return_inverse=True)
            of_slots = which, number * slots + rows % slots
        return SentFirst(route, original, self.features_of(vertices), readers, numbers, of_slots)

    def _split_groups(self, block: Block) -> SplitGroups:
        """List the groups of `block` whose softmax needs several owners. Local."""
        # Bytes and memory are predicted from the groups whose logarithms travel afterwards.
        known_of, known = self._split
        if known is None or known_of() is not block:
            known = SplitGroups.of(block, self.ctx.rank_offsets)
            self._split = ref(block), known
        return known

    def _with_names(self, share: PartialBlock, destinations: np.ndarray, first: SentFirst) -> PartialBlock:
        """Add the original ids of `destinations` (int64[n], ids), which masks of attention read. Collective.

        Where the topology is sharded, owners send them along the route of `first`.
        """
        if self.ctx.answers is None:
            names = self.ctx.sampler.topology.original_id[destinations]
            return replace(share, dst_original=torch.from_numpy(names).to(self.ctx.device))
        route, own = first.route, first.route.local_count
        sent, arrived = first.original[own:], np.empty(len(route.received_positions), np.int64)
        self.ctx.communicator.exchange(sent, route.sent_counts, arrived, route.received_counts, "ids")
        found = np.empty(route.total, np.int64)
        found[slice(None) if route.local_positions is None else route.local_positions] = first.original[:own]
        found[route.received_positions] = arrived

        # Destinations that no edge here reads keep 0, but for own ones, which read themselves.
        names = np.zeros(len(destinations), np.int64)
        names[first.destinations] = found[first.numbers]
        original = torch.from_numpy(names).to(self.ctx.device)
        local, rows = share.local
        return replace(share, dst_original=original.index_copy(0, local, share.src_original[rows]))

    def _requests(self, block: Block) -> _Requests:
        """List the requests of this rank for `block`. Local."""
        pairs = self.named.pairs(block)
        counts, destinations = pairs.counts, pairs.destinations
        if not self.form.separate_self:
            return _Requests(pairs, counts, destinations)

        # Only its owner has the row of a destination, so the self part comes from there alone, as a row of its own.
        home, owner = home_of(block.dst, self.ctx.rank_offsets), np.repeat(np.arange(self.ctx.ranks), counts)
        with_edges = np.isin(owner * block.n_dst + destinations, self._pairs_with_edges(block))
        is_home = home[destinations] == owner
        places = self._places(destinations, block.n_dst)
        rows = [(with_edges, place) for place in places[:-1]] + [(is_home, places[-1])]
        positions, row_counts = _in_order_of_ranks(owner, rows, self.ctx.ranks)
        return _Requests(pairs, row_counts, positions)

    def _pairs_with_edges(self, block: Block) -> np.ndarray:
        """List distinct pairs of an owner and a destination with neighbours there, as owner x n_dst + number.

        int64, ascending.
        """
        of_edge = np.repeat(np.arange(block.n_dst), np.diff(block.indptr))
        return np.unique(home_of(block.neighbours, self.ctx.rank_offsets) * block.n_dst + of_edge)

    @property
    def _name_bytes(self) -> int:
        return NUMBER if self.layer.attention_dropout and self.ctx.answers is not None else 0

    def _places(self, destinations: np.ndarray, n_dst: int) -> list[np.ndarray]:
        """List the places of the rows of shares of `destinations` in a block's matrix, then of their self parts."""
        return [destinations + n_dst * number for number in range(self.form.share_rows + 1)]

    def _with_self_parts(self, route: Route, share: LocalShare, foreign_counts: np.ndarray) -> tuple[Route, np.ndarray]:
        """Return the route with self parts as rows of their own, and the order of use of rows of `ShareForm.partial`.

        These are shares of all destinations, then self parts.
        """
        n_dst, n_all = route.total, share.block.n_dst
        local = share.block.local[0].cpu().numpy()
        mine, foreign = local[local < n_dst], local[local >= n_dst]
        numbers = range(self.form.share_rows)

        # Own rows come first: all shares, and the self parts of destinations of this rank.
        self_rows = n_all * len(numbers) + np.arange(len(local))
        local_positions = np.concatenate((np.arange(n_dst * len(numbers)), n_dst * len(numbers) + mine))
        first = [n_all * number + np.arange(n_dst) for number in numbers]

        # Rows for others, by requesting rank: shares where an edge starts here, then self parts.
        requester = np.repeat(np.arange(len(foreign_counts)), foreign_counts)
        with_edges = (share.block.edges.counts[n_dst:] > 0).cpu().numpy()
        lives_here = np.zeros(n_all - n_dst, bool)
        lives_here[foreign - n_dst] = True
        row_of_self = np.zeros(n_all - n_dst, np.int64)
        row_of_self[foreign - n_dst] = self_rows[len(mine) :]
        rows = [(with_edges, n_all * number + np.arange(n_dst, n_all)) for number in numbers]
        sent, sent_counts = _in_order_of_ranks(requester, [*rows, (lives_here, row_of_self)], len(foreign_counts))
        total = n_dst * (len(numbers) + 1)
        whole = Route(total, local_positions, route.received_positions, route.received_counts, sent_counts)
        return whole, np.concatenate((*first, self_rows[: len(mine)], sent))


def _in_order_of_ranks(
    rank: np.ndarray, kinds: Sequence[tuple[np.ndarray, np.ndarray]], ranks: int
) -> tuple[np.ndarray, np.ndarray]:
    """Order values by rank, then by kind; each of `kinds` is (has, values), and only values where `has` count.

    Arrays are of equal length, `rank` ascending. Returns int64 values and int64[ranks], how many of each rank.
    """
    values = np.concatenate([values[has] for has, values in kinds])
    ranks_of = np.concatenate([rank[has] for has, _ in kinds])
    order = np.argsort(ranks_of, kind="stable")
    return values[order], np.bincount(ranks_of, minlength=ranks).astype(np.int64)


MEMBER = ModeMember(Partial)
