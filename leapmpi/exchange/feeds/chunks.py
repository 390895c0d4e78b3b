"""A layer in chunks of its destinations, forward only, over all in-neighbours.

Owners hold *values* of their vertices: rows as stored, or rows multiplied once by the layer's weights. A chunk receives
remote values as rows, through the fetcher that holds them, or as the fewest shares and rows (`Stage`). Its routes
follow from the lists of vertices, so that what it will receive can be counted before.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.addressed_rows import AddressedRows
from leapmpi.exchange.feeds.partial import MixedCombination, MixedRows
from leapmpi.exchange.items import RemoteItems, fewest_items, pairs_by_owner
from leapmpi.exchange.layer_feed import ForwardFeed
from leapmpi.exchange.layer_form import PROJECTED, LayerForm, from_rows, from_sources
from leapmpi.exchange.named_edges import EdgeNames, KnownEdges, words_of
from leapmpi.exchange.own_lists import OwnLists
from leapmpi.exchange.partial_block import HomeEdges, home_edges
from leapmpi.exchange.stage import ComputedApart, Route, Stage, by_rank
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.rows import Rows, dense, select
from leapmpi.nn.tensors import BlockTensors, Edges, PartialBlock, to_tensors
from leapmpi.sampling.block import Block, indptr_of
from leapmpi.sampling.sampler import Sampler
from leapmpi.sampling.sharded.answer_format import AnswerFormat, answer_format
from leapmpi.sampling.sharded.remote_lists import KIND as TOPOLOGY

HIDDEN = "activations"
"""The kind under which hidden rows, projected rows and shares are counted."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some destinations of a layer on one rank: int64 ids, ascending.

    remote: the number of distinct remote sources. alone: whether the layer has no other chunk.
    """

    destinations: np.ndarray
    remote: int
    alone: bool


@dataclass(frozen=True, eq=False)
class ChunkItems:
    """The edges of a chunk: from own vertices, `here`, and remote ones with the items that serve them."""

    here: HomeEdges
    far_indptr: np.ndarray
    """int64[n + 1]: where the remote edges of each destination start in `here.others`."""
    remote: RemoteItems

    @classmethod
    def of(cls, lists: OwnLists, destinations: np.ndarray, rank: int) -> ChunkItems:
        """Find the items for `destinations` (int64 ascending, of this rank). Local."""
        topology, numbers = lists.topology, lists.numbers(destinations)
        indptr = indptr_of(topology.degree(numbers))
        if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1:
            neighbours = topology.indices[topology.indptr[numbers[0]] : topology.indptr[numbers[-1] + 1]]
        else:
            neighbours = topology.in_neighbours(numbers)
        here = home_edges(indptr, neighbours, lists.first, lists.end)
        far_indptr = indptr - here.indptr
        pairs = pairs_by_owner(numbers, far_indptr, here.others, lists.bounds, rank, False)
        return cls(here, far_indptr, fewest_items(far_indptr, here.others, lists.bounds, pairs))

    def named_edges(self, lists: OwnLists) -> np.ndarray:
        """Count the edges that shares serve, which are named to their owners: int64[ranks]."""
        numbers = self.here.others[self.remote.edge_rows < 0]
        return np.bincount(lists.owner_of(numbers), minlength=len(lists.bounds) - 1)

    def received(self, ctx: RankContext, id_bytes: int, row_bytes: int) -> dict[str, int]:
        """Count the bytes by kind that requests and replies take. Local."""
        shares, rows = len(self.remote.destinations), len(self.remote.rows)
        named = words_of(naming_format(ctx), np.array(shares), np.array(np.count_nonzero(self.remote.edge_rows < 0)))
        size = naming_format(ctx).word.itemsize
        return {TOPOLOGY: int(named) * size, "ids": rows * id_bytes, HIDDEN: (shares + rows) * row_bytes}


class ChunkSource:
    """Blocks and items of chunks, with all in-neighbours. Those of a layer's only chunk are kept."""

    def __init__(self, ctx: RankContext, lists: OwnLists) -> None:
        self.ctx, self.lists = ctx, lists
        self._block: tuple[np.ndarray, tuple[Block, BlockTensors]] | None = None
        self._items: tuple[np.ndarray, ChunkItems] | None = None

    @cached_property
    def sampler(self) -> Sampler:
        """The sampler, which takes all in-neighbours."""
        return self.lists.sampler(self.ctx)

    def block(self, destinations: np.ndarray, alone: bool) -> tuple[Block, BlockTensors]:
        """Return the block of `destinations` (int64); they are all of the layer if `alone`. Local."""
        if self._block is None or not np.array_equal(self._block[0], destinations):
            self._block = None
            with self.ctx.phases("sample"):
                block = self.lists.block(self.sampler, destinations)
            found = block, to_tensors(block, self.ctx.device)
            if not alone:
                return found
            self._block = destinations, found
        return self._block[1]

    def items(self, destinations: np.ndarray, alone: bool) -> ChunkItems:
        """Return the items of `destinations`, as `block` does. Local."""
        if self._items is None or not np.array_equal(self._items[0], destinations):
            self._items = None
            with self.ctx.phases("sample"):
                found = ChunkItems.of(self.lists, destinations, self.ctx.rank)
            if not alone:
                return found
            self._items = destinations, found
        return self._items[1]

    def with_edge_features(self, block: Block, tensors: BlockTensors) -> BlockTensors:
        """Add the features of its edges, which their destinations' owner holds, to `tensors`. Local."""
        fetcher = self.ctx.edge_features
        assert fetcher is not None, "a layer that reads features of edges is given some"
        assert block.edge_numbers is not None, "the sampler numbers edges where a layer reads their features"
        rows = fetcher.local(block.edge_numbers)
        assert isinstance(rows, Tensor), "features of edges are stored dense"
        return replace(tensors, edge_features=rows)


class ChunkedLayer:
    """Makes the feed of each chunk of one layer.

    `inputs` holds the input rows of this rank's vertices, `values` what travels of them: the same, or projected rows.
    """

    def __init__(
        self, ctx: RankContext, form: LayerForm, source: ChunkSource, inputs: FeatureFetcher, values: FeatureFetcher
    ) -> None:
        self.ctx, self.form, self.source, self.inputs, self.values = ctx, form, source, inputs, values
        self.lists = source.lists

    @cached_property
    def addressed(self) -> AddressedRows:
        """The values by the numbers of the lists."""
        return AddressedRows(self.ctx, self.lists, self.values)

    @cached_property
    def degrees(self) -> Tensor:
        """int64[own vertices]: their in-degrees where the layer reads those of sources, else none."""
        first, end = self.lists.first, self.lists.end
        return torch.from_numpy(self.lists.in_degrees(first, end if self.form.layer.names_sources else first))

    @property
    def answers(self) -> AnswerFormat:
        """The words in which edges are named to owners."""
        return naming_format(self.ctx)

    def feed(self, chunk: Chunk) -> ChunkFeed:
        """Request the remote values of `chunk`; its feed. Collective."""
        if self.form.shares:
            return SharesFeed(self, chunk)
        return AddressedFeed(self, chunk) if self.form.by_number else NumberedFeed(self, chunk)

    def own_inputs(self, destinations: np.ndarray) -> Rows:
        """Return the input rows of `destinations` (int64, of this rank), in the layer's type. Local."""
        layer = self.form.layer
        rows = self.inputs.local(destinations, scattered=self.ctx.in_place and layer.norm is None)
        return rows.to(layer.bias.dtype)


class ChunkFeed(ForwardFeed):
    """Base of feeds of chunks, which read own rows by themselves. An empty chunk gives no rows."""

    block: BlockTensors | None = None
    """The block, once `forward` has run, where the chunk is not empty; its destinations at least are named."""

    def __init__(self, chunked: ChunkedLayer, chunk: Chunk) -> None:
        super().__init__(chunked.ctx, chunked.form.layer)
        self.chunked, self.form, self.chunk = chunked, chunked.form, chunk

    def forward(self, below: Rows | None, key: DropoutKey | None) -> Tensor:
        self.receive()
        if not len(self.chunk.destinations):
            return self.layer.bias.new_empty(0, self.layer.out_dim)
        return self.output()

    @abstractmethod
    def receive(self) -> None:
        """Bring the remote values. Collective."""

    @abstractmethod
    def output(self) -> Tensor:
        """Compute the output rows, float[n_dst, out], once remote values have arrived. Local."""


class NumberedFeed(ChunkFeed):
    """A chunk fed by rows of its sources, which its block numbers."""

    def __init__(self, chunked: ChunkedLayer, chunk: Chunk) -> None:
        super().__init__(chunked, chunk)
        self._sampled, self.block = chunked.source.block(chunk.destinations, chunk.alone)
        self._exchange = chunked.values.prepare(self._sampled.src, scattered=self.form.in_place)

    def receive(self) -> None:
        with self.ctx.phases("exchange"):
            self._exchange.begin()
            self._exchange.wait()

    def output(self) -> Tensor:
        rows = self._exchange.unpack().to(self.layer.bias.dtype)
        assert self.block is not None, "the sampler has made it"
        if "edge_features" in self.layer.edge_data and self.ctx.edge_features is not None:
            self.block = self.chunked.source.with_edge_features(self._sampled, self.block)
        with self.ctx.phases("compute"):
            if self.form.form != PROJECTED:
                return from_rows(self.form, self.block, rows)
            return from_sources(self.layer, self.block, self.chunked.own_inputs(self._sampled.dst), rows)


class AddressedFeed(ChunkFeed):
    """A chunk fed by rows of its sources, found by the numbers of the lists."""

    def __init__(self, chunked: ChunkedLayer, chunk: Chunk) -> None:
        super().__init__(chunked, chunk)
        with self.ctx.phases("sample"):
            self._remote = chunked.addressed.remote(chunk.destinations, chunk.remote)
        self._exchange = chunked.values.prepare(chunked.lists.ids(self._remote), scattered=True)

    def receive(self) -> None:
        with self.ctx.phases("exchange"):
            self._exchange.begin()
            self._exchange.wait()

    def output(self) -> Tensor:
        addressed, destinations = self.chunked.addressed, self.chunk.destinations
        with self.ctx.phases("sample"):
            self.block = addressed.block(destinations)
        rows = addressed.rows(destinations, self._remote, self._exchange.unpack())
        with self.ctx.phases("compute"):
            if self.form.form != PROJECTED:
                return from_rows(self.form, self.block, rows)
            return from_sources(self.layer, self.block, self.chunked.own_inputs(destinations), rows)


class SharesFeed(ChunkFeed):
    """A chunk fed by shares of its destinations and rows of its sources, the fewest that serve its remote edges.

    Owners sum up their values for the destinations that others name with their edges. All ranks send shares and rows
    first, and sum up their own edges while these travel.
    """

    def __init__(self, chunked: ChunkedLayer, chunk: Chunk) -> None:
        super().__init__(chunked, chunk)
        ctx, lists, items = self.ctx, chunked.lists, chunked.source.items(chunk.destinations, chunk.alone)
        numbers = lists.numbers(chunk.destinations)
        self._facts = np.diff(items.here.indptr) + np.diff(items.far_indptr), lists.degrees_of(numbers)

        # Name destinations with their edges, and the rows.
        theirs, share_counts = self._names(items).exchange(ctx.communicator)
        remote, codec = items.remote, chunked.values.id_codec
        wanted, row_counts = ctx.communicator.exchange_ids(lists.ids(remote.rows), remote.row_counts, codec)
        shares, rows = np.arange(len(theirs.destinations)), len(theirs.destinations) + np.arange(len(wanted))

        # Items that arrive, by owner: shares go to destinations, rows to their edges.
        each, places = (remote.pair_counts, remote.row_counts), np.arange(len(remote.rows))
        marks = np.zeros(len(remote.destinations), bool), np.ones(len(places), bool)
        positions = by_rank((remote.destinations, places), each)
        route = Route(len(numbers), None, positions, remote.counts, share_counts + row_counts)
        self._sent = self._block(theirs.indptr, theirs.neighbours - ctx.local_range[0], theirs.sampled, theirs.degree)
        self._own = self._block(items.here.indptr, items.here.rows, *self._facts, numbers - lists.first)
        mixed = MixedRows(
            sent_rows=wanted - ctx.local_range[0],
            sent_order=by_rank((shares, rows), (share_counts, row_counts)),
            received=by_rank(marks, each),
            block=self._received(items),
        )
        self._mixed, self._stage = mixed, Stage(ctx, route, partial(MixedCombination, self.layer, mixed))

    def receive(self) -> None:
        values = self.chunked.values.whole
        assert values is not None, "own values are read in place, says `offers_shares`"
        with self.ctx.phases("compute"):
            rows = dense(select(values, torch.from_numpy(self._mixed.sent_rows)))
            shares = self.layer.raw_share(self._sent, values)
            sent = torch.cat([shares, rows]).index_select(0, torch.from_numpy(self._mixed.sent_order))
        own = partial(self.layer.raw_share, self._own, values)
        self._sums = self._stage.forward(ComputedApart((sent, _no_gradient), lambda: (own(), _no_gradient)))

    def output(self) -> Tensor:
        layer, degree = self.layer, self._facts[1]
        numbers = self.chunked.lists.numbers(self.chunk.destinations)
        original = torch.from_numpy(self.chunked.lists.topology.original_id[numbers])
        nothing = Edges(torch.zeros(len(numbers) + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 0)
        self.block = BlockTensors(0, len(numbers), nothing, original, torch.from_numpy(degree), None)
        with self.ctx.phases("compute"):
            x = self.chunked.own_inputs(self.chunk.destinations)
            neighbours = self._sums if self.form.form == PROJECTED else layer.project(self._sums)
            return layer.finish(layer.self_part(layer.prefix(x, original, None)), neighbours, x)

    def _names(self, items: ChunkItems) -> EdgeNames:
        """Make the names of the remote edges that shares serve."""
        lists, kept = self.chunked.lists, items.remote.edge_rows < 0
        indptr = np.concatenate(([0], np.cumsum(kept)))[items.far_indptr]
        numbers, nothing = items.here.others[kept], (None, None, None, None)
        owner = lists.owner_of(numbers)
        known = KnownEdges(self.chunk.destinations, *self._facts, indptr, lists.ids(numbers), *nothing)
        return EdgeNames(known, owner, items.remote.pair_counts, items.remote.destinations, self.chunked.answers)

    def _received(self, items: ChunkItems) -> PartialBlock:
        """Make the block of the edges that received rows serve."""
        kept = items.remote.edge_rows >= 0
        indptr = np.concatenate(([0], np.cumsum(kept)))[items.far_indptr]
        degrees = self.chunked.lists.degrees_of(items.remote.rows) if self.layer.names_sources else items.remote.rows
        return self._block(indptr, items.remote.edge_rows[kept], *self._facts, degrees=torch.from_numpy(degrees))

    def _block(
        self,
        indptr: np.ndarray,
        rows: np.ndarray,
        sampled: np.ndarray,
        degree: np.ndarray,
        own_rows: np.ndarray | None = None,
        degrees: Tensor | None = None,
    ) -> PartialBlock:
        """Make the block of edges from `rows`, integers[edges], to destinations, with facts int64[n] of these.

        Rows are own values, or received ones with `degrees`. own_rows: int64[n], the rows of the destinations
        themselves, where they are own.
        """
        count = self.chunked.lists.end - self.chunked.lists.first if degrees is None else len(degrees)
        degrees = self.chunked.degrees if degrees is None else degrees
        own = np.empty(0, np.int64) if own_rows is None else own_rows
        tensor = torch.from_numpy
        return PartialBlock(
            edges=Edges(tensor(indptr), tensor(rows.astype(np.int32, copy=False)), count),
            sampled=tensor(sampled),
            dst_degree=tensor(degree),
            src_original=tensor(np.empty(0, np.int64)),
            src_degree=degrees,
            local=(torch.arange(len(own)), tensor(own)),
        )


def naming_format(ctx: RankContext) -> AnswerFormat:
    """Return the words in which ids, degrees and counts are named to owners; the same on all ranks."""
    return answer_format(ctx.vertices, 0)


def _no_gradient(gradient: Tensor) -> None:
    """Ignore a gradient: chunks are computed without."""
