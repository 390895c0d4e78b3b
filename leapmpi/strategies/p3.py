"""`p3`: features by columns, the first layer computed where its columns are (Gandhi and Iyer, OSDI 2021).

Every rank holds some columns of the features of all vertices and the first layer's weights for them. It pushes the
first layer's edges of its share of the batch to all others; each computes its partial sums for all shares in one pass,
before bias and non-linearity, and returns them to the owner of the share alone, who adds them up. Gradients of the
sums go back to all, where each rank's weights get their whole gradient: they are neither sent nor reduced. Attention
needs single rows, so for it projected rows take the place of sums, and only the vertices are pushed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.config.schema import Config
from leapmpi.dataset.columns import column_bounds
from leapmpi.engine.first_layer.base import ExchangedMode, ExchangePlan, FirstLayerMode, no_residual
from leapmpi.engine.first_layer.partial_block import Contribution, PartialBlockBuilder
from leapmpi.engine.fixed_mode import FixedModeStrategy
from leapmpi.errors import ConfigError
from leapmpi.features.column_shard import load_columns
from leapmpi.features.shard import load_shard
from leapmpi.features.sparse_fetcher import fetcher_for
from leapmpi.nn.sharded_parameters import SplitLayout

if TYPE_CHECKING:
    from leapmpi.comm.world import World
    from leapmpi.engine.context import Loaded, RankContext
    from leapmpi.engine.minibatch import MicroBatch, MiniBatch
    from leapmpi.nn.layer import Layer
    from leapmpi.nn.tensors import BlockTensors
    from leapmpi.plan.traffic_model import Traffic
    from leapmpi.sampling.block import Block


class ColumnMode(ExchangedMode):
    """Every rank computes its columns' share of the first layer of all ranks' blocks."""

    def __init__(self, ctx: RankContext) -> None:
        super().__init__(ctx)
        self.layer: Layer = ctx.model.layers[0]
        self.ranges = IdCodec.anywhere(ctx.rank_offsets)
        self.pieces = PartialBlockBuilder(ctx.sampler.topology, 0, int(ctx.rank_offsets[-1]), ctx.device)

    @staticmethod
    def refusal(model: Any) -> str | None:
        """Refuses what needs all columns of a row at once: residuals and normalisation of the input."""
        if model.layers[0].norm is not None:
            return "normalising a row of features takes all its columns"
        return no_residual(model)

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers in a row of an answer."""

    @abstractmethod
    def push(self, block: Block) -> np.ndarray:
        """What others need to know of `block`, int64."""

    @abstractmethod
    def answered(self, pushed: np.ndarray) -> int:
        """Rows of the answer to `pushed`."""

    @abstractmethod
    def source(self, pushed: list[np.ndarray]) -> Any:
        """What makes the answers to all of `pushed`, one after the other, and `read`, the number of rows it reads."""

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Pushed blocks, shares and gradients that leave this rank or come back to it."""
        pushed = [self.push(micro_batch.blocks[-1]) for micro_batch in minibatch.micro_batches]
        words, rows = sum(map(len, pushed)), sum(map(self.answered, pushed))
        return (self.ctx.communicator.size - 1) * (words * self.ranges.id_bytes + 2 * rows * self._row_bytes)

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """Blocks pushed to all others, sums or projected rows that come from each, and their gradients."""
        rank, everyone = self.ctx.communicator.rank, np.ones(traffic.ranks, np.int64)
        everyone[rank] = 0
        for number, micro_batch in enumerate(minibatches[rank].micro_batches):
            pushed = self.push(micro_batch.blocks[-1])
            answer = self.answered(pushed) * self._row_bytes
            traffic.add_request(rank, everyone, len(pushed) * self.ranges.id_bytes, "activations", answer, answer)
            read = np.concatenate([minibatch.micro_batches[number].blocks[-1].src for minibatch in minibatches])
            traffic.add_rows(rank, "local", len(np.unique(read)))

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """The columns here of the rows of all ranks' blocks, and their answers with gradients."""
        del alone
        rows, copies = micro_batch.blocks[-1].n_src, (not self.ctx.scatters) + (self.layer.dropout > 0)
        each = copies * self.ctx.input_row_bytes + 4 * self._row_bytes
        return self.ctx.communicator.size * rows * each

    def ask_for(self, minibatch: MiniBatch, micro_batch: MicroBatch) -> ExchangePlan:
        """Push the block to all others, and see what theirs need of the columns here. Collective."""
        communicator, pushed = self.ctx.communicator, self.push(micro_batch.blocks[-1])
        others = np.arange(communicator.size) != communicator.rank
        arrived, sizes = communicator.exchange_ids(
            np.tile(pushed, communicator.size - 1), others * len(pushed), self.ranges
        )
        theirs = np.split(arrived, np.cumsum(sizes)[:-1])
        answers = np.zeros(communicator.size, np.int64)
        answers[others] = [self.answered(theirs[rank]) for rank in np.flatnonzero(others)]
        with self.ctx.phases("sample"):
            source = self.source([pushed, *(theirs[rank] for rank in np.flatnonzero(others))])
        communicator.byte_counters.add_rows("local", source.read)
        total = self.answered(pushed)
        return ExchangePlan(
            total=total,
            own_positions=None,
            asked_positions=np.tile(np.arange(total), communicator.size - 1),
            asked_counts=others * total,
            answer_counts=answers,
            source=source,
        )

    @property
    def _row_bytes(self) -> int:
        return self.width * self.layer.bias.element_size()


class ColumnSums(ColumnMode):
    """For a linear first layer: destinations and their sampled neighbours go out, partial sums come back."""

    @property
    def width(self) -> int:
        """Those of the layer's output."""
        return self.layer.out_dim

    def push(self, block: Block) -> np.ndarray:
        """The number of destinations; they, their numbers of neighbours, and these."""
        return np.concatenate(([block.n_dst], block.dst, np.diff(block.indptr), block.src[block.indices]))

    def answered(self, pushed: np.ndarray) -> int:
        """One row per destination."""
        return int(pushed[0])

    def source(self, pushed: list[np.ndarray]) -> Contribution:
        """What all vertices contribute to all destinations."""
        parts = [np.split(each[1:], [each[0], 2 * each[0]]) for each in pushed]
        destinations, sampled, neighbours = (np.concatenate(kind) for kind in zip(*parts, strict=True))
        indptr = np.concatenate(([0], np.cumsum(sampled)))
        return self.pieces.contribution(self.layer, self.ctx.columns, indptr, neighbours, destinations)

    def compute(self, minibatch: MiniBatch, exchange_plan: ExchangePlan) -> Any:
        """The share of the columns here in all sums."""
        return self.layer.partial(
            exchange_plan.source.piece,
            exchange_plan.source.rows(self.ctx.columns, self.ctx.scatters),
            minibatch.dropout,
        )

    def first_sums(self, minibatch: MiniBatch, block: BlockTensors, rows: Any) -> Any:
        """Shares add up to what is wanted."""
        return rows


@dataclass(frozen=True)
class DistinctRows:
    """Rows to project: those of `vertices` (int64, distinct), and where each answer stands among them, int64."""

    vertices: np.ndarray
    numbers: np.ndarray

    @property
    def read(self) -> int:
        """The number of rows read."""
        return len(self.vertices)


class ColumnRows(ColumnMode):
    """For attention: sources go out, partial projections of their rows come back."""

    @property
    def width(self) -> int:
        """Those of a projected row."""
        return self.layer.projected_width

    def push(self, block: Block) -> np.ndarray:
        """The sources."""
        return block.src

    def answered(self, pushed: np.ndarray) -> int:
        """One row per source."""
        return len(pushed)

    def source(self, pushed: list[np.ndarray]) -> DistinctRows:
        """Each vertex once, however many blocks it is a source of."""
        return DistinctRows(*self.pieces.number(np.concatenate(pushed)))

    def compute(self, minibatch: MiniBatch, exchange_plan: ExchangePlan) -> Any:
        """The share of the columns here in all projected rows."""
        source, topology = exchange_plan.source, self.ctx.sampler.topology
        original = self._index(topology.original_id[source.vertices])
        rows = self.layer.projected(
            self.ctx.columns.own(source.vertices, self.ctx.scatters), original, minibatch.dropout
        )
        return rows[self._index(source.numbers)]

    def first_sums(self, minibatch: MiniBatch, block: BlockTensors, rows: Any) -> Any:
        """Projected rows, whole now, are aggregated."""
        return self.layer.from_projected(block, rows, minibatch.dropout)


class P3(FixedModeStrategy):
    """Equal shares of the shuffled batch; columns of features and of first-layer weights on all ranks."""

    def own_mode(self) -> tuple[str, type[FirstLayerMode]]:
        """Sums where the first layer is linear, rows otherwise."""
        return "columns", ColumnSums if self.ctx.model.layers[0].linear else ColumnRows

    @classmethod
    def seated(cls, ctx: RankContext) -> RankContext:
        """The first layer's weights for this rank's columns. Raises ConfigError for what cannot be split."""
        width, ranks = ctx.features.shard.width, ctx.communicator.size
        if reason := ColumnMode.refusal(ctx.model):
            raise ConfigError(f"strategy: p3 cannot train this model: {reason}; use leap or pull")
        if width < ranks:
            raise ConfigError(
                f"strategy: p3 gives every rank some columns of the features, but the dataset has {width} for {ranks} "
                "ranks; use leap or pull, or fewer ranks"
            )
        parameters = SplitLayout(ctx.model, ctx.communicator, column_bounds(width, ranks))
        return replace(ctx, model=parameters.model, parameters=parameters)

    @property
    def feature_bytes(self) -> int:
        """Some columns of the rows of all vertices."""
        ctx, shard = self.ctx, self.ctx.features.shard
        width = int(np.diff(column_bounds(shard.width, ctx.communicator.size))[ctx.communicator.rank])
        return int(ctx.rank_offsets[-1]) * width * shard.row_bytes // shard.width

    @classmethod
    def place(cls, config: Config, world: World, loaded: Loaded) -> Loaded:
        """Read this rank's columns of the features, and keep the first layer's weights for them."""
        del config
        ctx = cls.seated(loaded.ctx)
        first, end = (int(bound) for bound in ctx.parameters.bounds[world.rank : world.rank + 2])
        host = load_columns(loaded.dataset, first, end, world.host, world.node_comm.size)
        shard = load_shard(host, ctx.device)
        columns = fetcher_for(
            ctx.communicator, shard, ctx.rank_offsets, ctx.device, ctx.features.dtype, "features", ctx.phases
        )
        return replace(loaded, shard_bytes=host.nbytes, ctx=replace(ctx, columns=columns))


STRATEGY = P3
