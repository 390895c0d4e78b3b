"""A layer in chunks of its destinations, forward only, over all in-neighbours.

Owners hold *values* of their vertices: rows as stored, or rows multiplied once by the layer's weights. A chunk receives
remote values as rows, through the fetcher that holds them, or as the fewest shares and rows (`Stage`).
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
from leapmpi.exchange.feeds.partial import MixedCombination
from leapmpi.exchange.feeds.share_routes import ChunkItems, ShareRoutes
from leapmpi.exchange.layer_feed import ForwardFeed
from leapmpi.exchange.layer_form import PROJECTED, LayerForm, from_rows, from_sources
from leapmpi.exchange.own_lists import OwnLists
from leapmpi.exchange.stage import ComputedApart, Stage
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.rows import Rows, dense, select
from leapmpi.nn.tensors import BlockTensors, to_tensors
from leapmpi.sampling.block import Block
from leapmpi.sampling.sampler import Sampler


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some destinations of a layer on one rank: int64 ids, ascending.

    remote: the number of distinct remote sources. alone: whether the layer has no other chunk.
    """

    destinations: np.ndarray
    remote: int
    alone: bool


class ChunkSource:
    """Blocks and items of chunks, with all in-neighbours. Those of a layer's only chunk are kept."""

    def __init__(self, ctx: RankContext, lists: OwnLists) -> None:
        self.ctx, self.lists = ctx, lists
        self._block: tuple[np.ndarray, tuple[Block, BlockTensors]] | None = None
        self._items: tuple[np.ndarray, ChunkItems] | None = None
        self._routes: tuple[np.ndarray, ShareRoutes] | None = None

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

    def routes(self, chunk: Chunk) -> ShareRoutes:
        """Return the routes of shares and rows of `chunk`; destinations are named to owners. Collective.

        Layers with the same destinations, one array on each rank, share the routes of their only chunk.
        """
        if self._routes is not None and chunk.alone and self._routes[0] is chunk.destinations:
            return self._routes[1]
        # The routes before are released first: two at a time would double their memory.
        self._routes = None
        found = ShareRoutes(self.ctx, self.lists, chunk.destinations, self.items(chunk.destinations, chunk.alone))
        if chunk.alone:
            self._routes = chunk.destinations, found
        return found

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

    `inputs` holds the input rows of this rank's vertices; `values` the rows that travel: the same, or projected ones.
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

    def feed(self, chunk: Chunk) -> ChunkFeed:
        """Request the remote values of `chunk`, and return its feed. Collective."""
        if self.form.shares:
            return SharesFeed(self, chunk)
        return AddressedFeed(self, chunk) if self.form.by_number else NumberedFeed(self, chunk)

    def own_inputs(self, destinations: np.ndarray) -> Rows:
        """Return the input rows of `destinations` (int64, of this rank), in the layer's type. Local."""
        layer = self.form.layer
        rows = self.inputs.local(destinations, scattered=self.ctx.in_place and layer.norm is None)
        return rows.to(layer.dtype)


class ChunkFeed(ForwardFeed):
    """Base of feeds of chunks, which read own rows themselves. An empty chunk gives no rows."""

    block: BlockTensors | None = None
    """The block, once `forward` has run, where the chunk is not empty; it describes its destinations at least."""

    def __init__(self, chunked: ChunkedLayer, chunk: Chunk) -> None:
        super().__init__(chunked.ctx, chunked.form.layer)
        self.chunked, self.form, self.chunk = chunked, chunked.form, chunk

    def forward(self, below: Rows | None, key: DropoutKey | None) -> Tensor:
        self.receive()
        if not len(self.chunk.destinations):
            return torch.empty(0, self.layer.out_dim, dtype=self.layer.dtype, device=self.ctx.device)
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
        rows = self._exchange.unpack().to(self.layer.dtype)
        assert self.block is not None, "the sampler has made it"
        if "edge_features" in self.layer.edge_data and self.ctx.edge_features is not None:
            self.block = self.chunked.source.with_edge_features(self._sampled, self.block)
        with self.ctx.phases("compute"):
            if self.form.form != PROJECTED:
                return from_rows(self.form, self.block, rows)
            # Projected rows lack the destinations' own terms, which need their input.
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
        self.routes = chunked.source.routes(chunk)
        self.block = self.routes.named
        combination = partial(MixedCombination, self.layer, self.routes.mixed)
        self._stage = Stage(self.ctx, self.routes.route, self.form.travels, combination)

    def receive(self) -> None:
        values, mixed = self.chunked.values.whole, self.routes.mixed
        assert values is not None, "own values are read in place, says `offers_shares`"
        assert self.layer.shares is not None, "the layer offers shares, says `offers_shares`"
        raw_share = self.layer.shares.raw_share
        assert raw_share is not None, "its shares are sums of rows, says `offers_shares`"
        # Shares for others first: they travel while own edges are summed.
        with self.ctx.phases("compute"):
            rows = dense(select(values, torch.from_numpy(mixed.sent_rows)))
            shares = raw_share(self.routes.sent, values)
            sent = torch.cat([shares, rows]).index_select(0, torch.from_numpy(mixed.sent_order))
        own = partial(raw_share, self.routes.own, values)
        self._sums = self._stage.forward(ComputedApart((sent, _no_gradient), lambda: (own(), _no_gradient)))

    def output(self) -> Tensor:
        layer = self.layer
        with self.ctx.phases("compute"):
            x = self.chunked.own_inputs(self.chunk.destinations)
            neighbours = self._sums if self.form.form == PROJECTED else layer.project(self._sums)
            own = layer.self_part(layer.prefix(x, self.routes.named.dst_original, None))
            return layer.finish(own, neighbours, x)


def _no_gradient(gradient: Tensor) -> None:
    """Drop a gradient: chunks are computed without."""
