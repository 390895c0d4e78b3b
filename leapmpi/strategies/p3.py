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
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from leapmpi.config import Config
from leapmpi.dataset.column_shard import load_columns
from leapmpi.dataset.shard import load_shard
from leapmpi.errors import ConfigError
from leapmpi.fetch import RowFetcher
from leapmpi.id_ranges import IdRanges
from leapmpi.remote._mode import Asked, ExchangedMode, no_residual
from leapmpi.remote._piece import Pieces
from leapmpi.strategies._own_mode import OwnMode
from leapmpi.training.split_layout import SplitLayout, column_bounds

if TYPE_CHECKING:
    from leapmpi.nn.tensors import BlockTensors
    from leapmpi.plan.traffic import Traffic
    from leapmpi.sampling.block import Block
    from leapmpi.strategies._iteration import Cell, Iteration, Surroundings
    from leapmpi.training.loading import Loaded
    from leapmpi.world import World


class Columns(ExchangedMode):
    """Every rank computes its columns' share of the first layer of all ranks' blocks."""

    def __init__(self, at: Surroundings) -> None:
        super().__init__(at)
        vertices = int(at.rank_offsets[-1])
        self.ranges = IdRanges.anywhere(at.rank_offsets)
        self._pieces = Pieces(at.sampler.topology, 0, vertices, at.device)

    @staticmethod
    def refusal(model: Any) -> str | None:
        """Refuses what needs all columns of a row at once: residuals and normalisation of the input."""
        if model.layers[0].norm is not None:
            return "normalising a row of features takes all its columns"
        return no_residual(model)

    def predicted_bytes(self, work: Iteration) -> int:
        """Pushed blocks, shares and gradients that leave this rank or come back to it."""
        layer, others = self.at.model.layers[0], self.at.wire.size - 1
        width = layer.bias.element_size() * (layer.out_dim if layer.linear else layer.projected_width)
        blocks = [cell.blocks[-1] for cell in work.cells]
        rows = sum(block.n_dst if layer.linear else block.n_src for block in blocks)
        pushed = sum(len(self._pushed(block)) for block in blocks)
        return others * (pushed * self.ranges.id_bytes + 2 * rows * width)

    def predict(self, works: Sequence[Iteration], traffic: Traffic) -> None:
        """Blocks pushed to all others, sums or projected rows that come from each, and their gradients."""
        layer, rank = self.at.model.layers[0], self.at.wire.rank
        width = layer.bias.element_size() * (layer.out_dim if layer.linear else layer.projected_width)
        everyone = np.full(traffic.ranks, 1)
        everyone[rank] = 0
        for number, cell in enumerate(works[rank].cells):
            block = cell.blocks[-1]
            pushed = len(self._pushed(block)) * self.ranges.id_bytes
            rows = width * (block.n_dst if layer.linear else block.n_src)
            traffic.add_request(rank, everyone, pushed, "activations", rows, rows)
            read = np.concatenate([work.cells[number].blocks[-1].src for work in works])
            traffic.add_rows(rank, "local", len(np.unique(read)))

    def ask_for(self, work: Iteration, cell: Cell) -> Asked:
        """Push the block to all others, and see what theirs need of the columns here. Collective."""
        wire, block = self.at.wire, cell.blocks[-1]
        pushed = self._pushed(block)
        counts = np.full(wire.size, len(pushed), np.int64)
        counts[wire.rank] = 0
        arrived, sizes = wire.exchange_ids(np.tile(pushed, wire.size - 1), counts, self.ranges)
        blocks = np.split(arrived, np.cumsum(sizes)[:-1])
        blocks[wire.rank] = pushed
        order = [wire.rank, *(rank for rank in range(wire.size) if rank != wire.rank)]
        with self.at.phases("sample"):
            rows, source, vertices = self._source([blocks[rank] for rank in order])
        wire.ledger.add_rows("local", len(vertices))
        total, answers = rows[0], np.zeros(wire.size, np.int64)
        answers[order] = rows
        answers[wire.rank] = 0
        own = np.arange(total)
        return Asked(
            total=total,
            own_positions=own,
            asked_positions=np.tile(own, wire.size - 1),
            asked_counts=np.where(np.arange(wire.size) == wire.rank, 0, total),
            answer_counts=answers,
            source=(source, vertices),
        )

    def compute(self, work: Iteration, asked: Asked) -> Any:
        """The share of the columns here in the sums, or projected rows, of all ranks' blocks."""
        layer, (source, vertices) = self.at.model.layers[0], asked.source
        features = self.at.columns.own(vertices)
        if layer.linear:
            return layer.partial(source, features, work.dropout)
        original = torch.from_numpy(self.at.sampler.topology.original_id[vertices]).to(self.at.device)
        return layer.projected(features, original, work.dropout)[source]

    def first_sums(self, work: Iteration, block: BlockTensors, rows: Any) -> Any:
        """Shares of sums add up to what is wanted; projected rows are aggregated here."""
        layer = self.at.model.layers[0]
        return rows if layer.linear else layer.from_projected(block, rows, work.dropout)

    def _pushed(self, block: Block) -> np.ndarray:
        """What others need to know of `block`: its sources, or its destinations with their sampled neighbours."""
        if not self.at.model.layers[0].linear:
            return block.src
        head = np.array([block.n_dst], np.int64)
        return np.concatenate((head, block.dst, np.diff(block.indptr), block.src[block.indices]))

    def _source(self, pushed: list[np.ndarray]) -> tuple[list[int], Any, np.ndarray]:
        """Rows to compute for each of the blocks `pushed`; what makes them from which vertices (int64, distinct)."""
        if not self.at.model.layers[0].linear:
            vertices, numbers = self._pieces.number(np.concatenate(pushed))
            return [len(each) for each in pushed], self._index(numbers), vertices
        parts = [np.split(each[1:], [each[0], 2 * each[0]]) for each in pushed]
        destinations, sampled, neighbours = (np.concatenate(kind) for kind in zip(*parts, strict=True))
        indptr = np.concatenate(([0], np.cumsum(sampled)))
        piece, vertices = self._pieces.cut(indptr, neighbours, destinations)
        return [int(each[0]) for each in pushed], piece, vertices


class P3(OwnMode):
    """Equal shares of the shuffled batch; columns of features and of first-layer weights on all ranks."""

    own_mode = ("columns", Columns)

    @classmethod
    def seated(cls, at: Surroundings) -> Surroundings:
        """The first layer's weights for this rank's columns. Raises ConfigError for a model that cannot be split."""
        if reason := Columns.refusal(at.model):
            raise ConfigError(f"strategy: p3 cannot train this model: {reason}; use leap or pull")
        parameters = SplitLayout(at.model, at.wire, column_bounds(at.features.shard.width, at.wire.size))
        return replace(at, model=parameters.model, parameters=parameters)

    @property
    def feature_bytes(self) -> int:
        """Some columns of the rows of all vertices."""
        at, shard = self.at, self.at.features.shard
        width = int(np.diff(column_bounds(shard.width, at.wire.size))[at.wire.rank])
        return int(at.rank_offsets[-1]) * width * (shard.row_bytes // shard.width)

    @classmethod
    def place(cls, config: Config, world: World, loaded: Loaded) -> Loaded:
        """Read this rank's columns of the features, and keep the first layer's weights for them."""
        at, dataset = loaded.at, loaded.dataset
        if reason := Columns.refusal(at.model):
            raise ConfigError(f"strategy: p3 cannot train this model: {reason}; use leap or pull")
        if dataset.feature_dim < world.size:
            raise ConfigError(
                f"strategy: p3 on {world.size} ranks needs as many features, {config.data} has {dataset.feature_dim}; "
                "use leap or pull, or fewer ranks"
            )
        bounds = column_bounds(dataset.feature_dim, world.size)
        first, end = (int(bound) for bound in bounds[world.rank : world.rank + 2])
        host = load_columns(dataset, first, end, world.host, world.node_comm.size)
        shard = load_shard(host, at.device)
        columns = RowFetcher(at.wire, shard, at.rank_offsets, at.device, at.features.dtype, "features", at.phases)
        parameters = SplitLayout(at.model, at.wire, bounds)
        at = replace(at, model=parameters.model, parameters=parameters, columns=columns)
        return replace(loaded, shard_bytes=host.nbytes, at=at)


STRATEGY = P3
