"""`p3`: features by columns, the first layer computed where its columns are (Gandhi and Iyer, OSDI 2021).

Every rank holds some columns of the features of all vertices and the first layer's weights for them. It pushes the
first layer's edges of its share of the batch to all others; each computes its partial sums for all shares in one pass,
before bias and non-linearity, and returns them to the owner of the share alone, who adds them up. Gradients of the
sums go back to all, where each rank's weights get their whole gradient: they are neither sent nor reduced. Attention
needs single rows, so for it projected rows take the place of sums, and only the vertices are pushed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset, column_bounds
from leapmpi.engine.even_placement import EvenPlacement, fixed_mode, looks_up_all_ranks, one_time_step
from leapmpi.engine.placement import Strategy
from leapmpi.errors import ConfigError
from leapmpi.exchange.computed_mode import NUMBER, ComputedRowsMode
from leapmpi.exchange.context import Loaded, RankContext
from leapmpi.exchange.feeds.partial import PartialFeed
from leapmpi.exchange.feeds.projected import ProjectedFeed, ProjectedRows
from leapmpi.exchange.layer_feed import ExchangedFeed, LayerFeed, SizesFeed
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.exchange.partial_block import PartialBlockBuilder
from leapmpi.exchange.stage import Route, Transfer
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.shards.column_shard import check_columns, load_columns
from leapmpi.features.shards.row_placement import load_shard
from leapmpi.nn.layer import Layer
from leapmpi.nn.sharded_parameters import ShardedParameterLayout
from leapmpi.nn.share_forms import SumCombination
from leapmpi.plan.traffic_model import Traffic
from leapmpi.sampling.block import Block


class ColumnSums(ComputedRowsMode):
    """Every rank computes its columns' share of the first layer of all ranks' blocks.

    The layer is linear: destinations and their sampled neighbours go out, partial sums come back.
    """

    description = (
        "blocks of the first layer to all ranks, every rank's partial sums (of layers not linear, projected rows) for "
        "them and their gradients"
    )

    def __init__(self, ctx: RankContext) -> None:
        super().__init__(ctx)
        self.id_codec = IdCodec.any_id(ctx.rank_offsets)
        self.builder = PartialBlockBuilder(ctx.sampler.topology, 0, int(ctx.rank_offsets[-1]), ctx.device)

    @classmethod
    def refusal(cls, layer: Layer) -> str | None:
        """Refuse what needs all columns of a row at once: residuals and normalisation of the input."""
        if layer.norm is not None:
            return "normalising a row of features takes all its columns"
        return super().refusal(layer)

    @property
    def columns(self) -> FeatureFetcher:
        """This rank's columns of the features of all vertices."""
        assert self.ctx.columns is not None
        return self.ctx.columns

    @property
    def width(self) -> int:
        """Numbers in a row of an answer."""
        return self.layer.out_dim if self.layer.shares is None else self.layer.shares.width

    def pushed(self, block: Block) -> np.ndarray:
        """Return what other ranks need of `block`, int64: the number of destinations, their ids, degrees, and
        neighbours.
        """
        return np.concatenate(([block.n_dst], block.dst, np.diff(block.indptr), block.neighbours))

    def answer_rows(self, pushed: np.ndarray) -> int:
        """Return rows of the answer to `pushed`: one per destination."""
        return int(pushed[0])

    def vertices_of(self, pushed: np.ndarray) -> np.ndarray:
        """Return the vertices int64 whose rows the answer to `pushed` reads; some more than once."""
        count = int(pushed[0])
        return np.concatenate((pushed[1 : 1 + count], pushed[1 + 2 * count :]))

    def feed_of(self, pushed: list[np.ndarray], route: Route) -> tuple[ExchangedFeed, int]:
        """Return the feed that answers all of `pushed` in order, and the number of distinct rows that it reads.
        Local.
        """
        parts = [np.split(each[1:], [each[0], 2 * each[0]]) for each in pushed]
        destinations, sampled, neighbours = (np.concatenate(kind) for kind in zip(*parts, strict=True))
        indptr = np.concatenate(([0], np.cumsum(sampled)))
        share = self.builder.share(self.layer, self.columns, indptr, neighbours, destinations)
        features = partial(share.rows, self.columns, self.ctx.scatters)
        return PartialFeed(self.ctx, self.layer, None, route, share.block, route.total, features), share.read

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Count pushed blocks, shares and gradients that leave this rank or return to it."""
        pushed = [self.pushed(micro_batch.blocks[-1]) for micro_batch in minibatch.micro_batches]
        words, rows = sum(map(len, pushed)), sum(map(self.answer_rows, pushed))
        return (self.ctx.ranks - 1) * (words * self.id_codec.id_bytes + 2 * rows * self._row_bytes)

    def plan_bytes(self, block: Block) -> int:
        """Return the blocks of all ranks, with a list of rows not read in place, and where answers belong."""
        ranks, columns, rows = self.ctx.ranks, self.ctx.columns, 3 * block.n_src
        # A forecast has no columns, and counts the list.
        if columns and self.builder.suit_in_place(self.layer, columns, ranks * block.edges, ranks * block.n_dst):
            rows = 0
        return ranks * (block.indices.nbytes + NUMBER * (6 * block.n_dst + rows))

    def work(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> tuple[int, int, int]:
        """Return columns of the rows of all ranks, and the edges of all ranks' blocks."""
        blocks = [each.first_block for batch in minibatches for each in batch.micro_batches]
        read = int(traffic.rows["local"][self.ctx.rank])
        return read, sum(block.n_dst for block in blocks), sum(block.edges for block in blocks)

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """Return the columns here of the rows of all ranks' blocks, and their answers with gradients."""
        rows, copies = micro_batch.blocks[-1].n_src, (not self.ctx.scatters) + (self.layer.dropout > 0)
        each = copies * self.ctx.input_row_bytes + 4 * self._row_bytes
        return self.ctx.ranks * rows * each

    def feed(self, minibatch: MiniBatch, micro_batch: MicroBatch) -> LayerFeed:
        """Send the block to all other ranks, and receive theirs, for the columns held here. Collective."""
        ctx, ranks = self.ctx, self.ctx.ranks
        pushed = self.pushed(micro_batch.first_block)
        others = np.arange(ranks) != ctx.rank
        by_rank = ctx.communicator.spread_ids(pushed, self.id_codec)
        foreign = [by_rank[rank] for rank in np.flatnonzero(others)]

        # Every rank answers for the blocks of all ranks.
        answer_counts = np.zeros(ranks, np.int64)
        answer_counts[others] = [self.answer_rows(each) for each in foreign]
        total = self.answer_rows(pushed)
        route = Route(total, None, np.tile(np.arange(total), ranks - 1), others * total, answer_counts)
        if not ctx.communicator.carries:
            # All ranks read columns of the same rows.
            reads = np.zeros(ctx.vertices, bool)
            for each in by_rank:
                reads[self.vertices_of(each)] = True
            ctx.communicator.byte_counters.add_rows("local", int(np.count_nonzero(reads)))
            return SizesFeed(ctx, self.layer, Transfer(ctx, route.sent_counts, route.received_counts, self.width))
        with ctx.phases("sample"):
            feed, read = self.feed_of([pushed, *foreign], route)
        ctx.communicator.byte_counters.add_rows("local", read)
        return feed

    @property
    def _row_bytes(self) -> int:
        return self.width * self.layer.dtype.itemsize


class ColumnRows(ColumnSums):
    """For attention and maxima: sources go out, partial projections of their rows come back."""

    @property
    def width(self) -> int:
        """Numbers in a projected row."""
        return self.layer.rows.width

    def pushed(self, block: Block) -> np.ndarray:
        """Return the sources: int64[n_src]."""
        return block.src

    def answer_rows(self, pushed: np.ndarray) -> int:
        """Return one row per source."""
        return len(pushed)

    def vertices_of(self, pushed: np.ndarray) -> np.ndarray:
        """Return the sources: int64[n_src]."""
        return pushed

    def plan_bytes(self, block: Block) -> int:
        """Return the sources of all ranks, distinct ones and their numbers, and where the answers belong."""
        return self.ctx.ranks * NUMBER * 3 * block.n_src

    def work(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> tuple[int, int, int]:
        """Return columns of the rows of all ranks, and the edges of this rank's blocks."""
        sources, _, _ = super().work(minibatches, traffic)
        _, destinations, edges = ExchangeMode.work(self, minibatches, traffic)
        return sources, destinations, edges

    def feed_of(self, pushed: list[np.ndarray], route: Route) -> tuple[ExchangedFeed, int]:
        """Count each vertex as projected once, from the columns here, and whole rows as aggregated."""
        vertices, numbers = self.builder.number(np.concatenate(pushed))
        original = self.ctx.sampler.topology.original_id[vertices]
        rows = ProjectedRows(original, numbers[route.total :], numbers[: route.total])
        features = partial(self.columns.local, vertices, self.ctx.scatters)
        return ProjectedFeed(self.ctx, self.layer, None, route, rows, features, SumCombination), len(vertices)


def check_settings(config: Config, dataset: Dataset) -> None:
    """Raise ConfigError for a limit on the memory of features."""
    if config.strategy.feature_memory:
        raise ConfigError(
            "strategy.feature_memory: p3 holds columns of all rows in memory; leave it out, or use leap or pull"
        )


def place_parameters(ctx: RankContext) -> RankContext:
    """Return the first layer's weights for this rank's columns. Raises ConfigError for what cannot be split."""
    width, ranks = ctx.features.shard.width, ctx.ranks
    if reason := ColumnSums.refusal(ctx.model.layers[0]):
        raise ConfigError(f"strategy: p3 cannot train this model: {reason}; use leap or pull")
    if width < ranks:
        raise ConfigError(
            f"strategy: p3 gives every rank some columns of the features, but the dataset has {width} for {ranks} "
            "ranks; use leap or pull, or fewer ranks"
        )
    # Every rank holds the columns of the first weights that meet its columns of features.
    parameters = ShardedParameterLayout(ctx.model, ctx.communicator, column_bounds(width, ranks))
    return replace(ctx, model=parameters.model, parameters=parameters)


def place(world: World, loaded: Loaded) -> Loaded:
    """Read this rank's columns of the features, and keep the first layer's weights for them."""
    ctx = place_parameters(loaded.ctx)
    assert isinstance(ctx.parameters, ShardedParameterLayout)
    first, end = (int(bound) for bound in ctx.parameters.bounds[world.rank : world.rank + 2])
    host = load_columns(loaded.dataset, first, end, world.host, world.node_comm.size)
    columns = ctx.features.holding(load_shard(host, ctx.device, loaded.shared), ctx.rank_offsets)
    return replace(loaded, shard_bytes=host.nbytes, ctx=replace(ctx, columns=columns))


def check_room(world: World, loaded: Loaded) -> None:
    """Raise ResourceError where this rank's columns do not fit."""
    first, end = column_bounds(loaded.dataset.feature_dim, world.size)[world.rank : world.rank + 2].tolist()
    check_columns(loaded.dataset, first, end, world.host, world.node_comm.size)


def feature_bytes(ctx: RankContext) -> int:
    """Count the bytes of some columns of the rows of all vertices."""
    shard = ctx.features.shard
    width = int(np.diff(column_bounds(shard.width, ctx.ranks))[ctx.rank])
    return int(ctx.rank_offsets[-1]) * width * shard.row_bytes // shard.width


MEMBER = Strategy(
    EvenPlacement,
    one_time_step,
    mode=fixed_mode("columns", lambda ctx: ColumnSums if ctx.model.layers[0].linear else ColumnRows),
    roots_are_local=False,
    check_settings=check_settings,
    why_whole_topology=looks_up_all_ranks,
    place_parameters=place_parameters,
    place=place,
    check_room=check_room,
    feature_bytes=feature_bytes,
)
"""Equal shares of the shuffled batch; columns of features and of first-layer weights on all ranks."""
