"""`projected`: a remote row arrives multiplied by the layer's weights, H numbers instead of F.

Serves every layer that offers the split, attention included. Gradients of the projected rows travel back, and the owner
adds its share of the weights' gradient. Of layers in which destinations need numbers of their own (`Layer.own_width`),
these follow as rows of the same width, for destinations alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leapmpi.engine.exchange.computed_rows import NUMBER, ComputedRows, ComputedRowsMode, ExchangePlan
from leapmpi.engine.minibatch import MicroBatch, MiniBatch
from leapmpi.features.row_exchange import RowRequest
from leapmpi.nn.tensors import BlockTensors
from leapmpi.plan.homes import home_of
from leapmpi.plan.traffic_model import Traffic
from leapmpi.sampling.block import Block


@dataclass
class Sources:
    """What projected rows are made of: int64 ids of local vertices, those that are sources here before those requested.

    destinations: likewise, those that `Layer.project_own` is for; order: how the rows of both are used. None without.
    """

    vertices: np.ndarray
    destinations: np.ndarray | None = None
    order: np.ndarray | None = None


class Projected(ComputedRowsMode):
    """The owner projects the rows that are requested; the matrix of the layer holds one row per source."""

    order = 3
    description = "projected rows of vertices at home elsewhere and their gradients"

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Remote sources of every micro-batch: an id, a projected row and its gradient; destinations alike."""
        ctx, size = self.ctx, self.layer.bias.element_size()
        id_bytes, total = ctx.inputs(self.number).id_codec.id_bytes, 0
        for micro_batch in minibatch.micro_batches:
            for ids, width in self._asked(micro_batch):
                remote = int((home_of(ids, ctx.rank_offsets) != ctx.rank).sum())
                total += remote * (id_bytes + 2 * width * size)
        return total

    def _asked(self, micro_batch: MicroBatch) -> list[tuple[np.ndarray, int]]:
        """Vertices (int64), and the numbers that their homes project of each: sources, then destinations if need be."""
        block, layer = micro_batch.block(self.number), self.layer
        asked = [(block.src, layer.source_width if layer.own_width else layer.projected_width)]
        return [*asked, (block.dst, layer.own_width)] if layer.own_width else asked

    def plan_bytes(self, block: Block) -> int:
        """Ids of sources, and of destinations that need rows of their own; where rows belong, and their order."""
        layer, ids, rows = self.layer, block.n_src, block.n_src
        if not layer.own_width:
            return NUMBER * (ids + rows)
        rows += block.n_dst * layer.own_width // layer.source_width
        return NUMBER * (ids + block.n_dst + 2 * rows)

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """Of each micro-batch, ids of remote sources, their projected rows and the gradients; destinations alike."""
        ctx, size = self.ctx, self.layer.bias.element_size()
        id_bytes = ctx.inputs(self.number).id_codec.id_bytes
        for micro_batch in minibatches[ctx.rank].micro_batches:
            for number, (ids, width) in enumerate(self._asked(micro_batch)):
                request, row = RowRequest(ids, ctx.rank_offsets, ctx.rank), width * size
                traffic.add_request(ctx.rank, request.remote_counts, id_bytes, "activations", row, row)
                # Destinations are sources, whose rows are read once.
                if number == 0:
                    traffic.add_rows(ctx.rank, "local", len(request.local_ids))
                    traffic.add_rows(ctx.rank, "remote", len(request.remote_ids))

    def plan_exchange(self, minibatch: MiniBatch, micro_batch: MicroBatch) -> ExchangePlan:
        """Request the projected rows of remote sources from their owners. Collective."""
        plan = self.request_rows(micro_batch.block(self.number).src)
        byte_counters = self.ctx.communicator.byte_counters
        byte_counters.add_rows("local", plan.local_count)
        byte_counters.add_rows("remote", len(plan.remote_positions))
        plan.source = Sources(plan.source)
        if self.layer.own_width:
            self._add_destinations(plan, micro_batch.block(self.number).dst)
        return plan

    def _add_destinations(self, plan: ExchangePlan, ids: np.ndarray) -> None:
        """Request what the destinations `ids` need besides, as more rows of the matrix. Collective."""
        sources, total, local = plan.source, plan.total, plan.local_count
        own_plan = self.request_rows(ids)
        sources.destinations = own_plan.source

        # Where the rows of each destination belong: those of one follow each other.
        each = self.layer.own_width // self.layer.source_width

        def places(positions: np.ndarray) -> np.ndarray:
            return (total + positions[:, None] * each + np.arange(each)).reshape(-1)

        assert plan.local_positions is not None, "some sources may be remote"
        assert own_plan.local_positions is not None, "so may destinations"
        plan.local_positions = np.concatenate((plan.local_positions, places(own_plan.local_positions)))
        plan.remote_positions = _by_rank(
            (plan.remote_positions, places(own_plan.remote_positions)),
            (plan.remote_counts, own_plan.remote_counts * each),
        )

        # All sources are computed and then the rows of destinations, of both the local ones before those requested.
        given = np.arange(len(sources.vertices))
        own = len(given) + np.arange(each * len(sources.destinations))
        local_own = each * own_plan.local_count
        answers = _by_rank((given[local:], own[local_own:]), (plan.answer_counts, own_plan.answer_counts * each))
        sources.order = np.concatenate((given[:local], own[:local_own], answers))
        plan.remote_counts = plan.remote_counts + own_plan.remote_counts * each
        plan.answer_counts = plan.answer_counts + own_plan.answer_counts * each
        plan.total = total + each * len(ids)

    def computed(self, minibatch: MiniBatch, plan: ExchangePlan, first: Tensor | None) -> ComputedRows:
        sources, layer = plan.source, self.layer
        if sources.destinations is None:
            rows = layer.projected(*self.local_rows(sources.vertices), minibatch.dropout)
            return ComputedRows(rows, plan.local_count)

        # What sources give, and what destinations need, in the order in which they are used.
        given = layer.project_source(layer.prefix(*self.local_rows(sources.vertices), minibatch.dropout))
        own = layer.project_own(layer.prefix(*self.local_rows(sources.destinations), minibatch.dropout))
        rows = torch.cat([given, own.reshape(-1, layer.source_width)])
        return ComputedRows(rows.index_select(0, self._on_device(sources.order)), plan.local_count)

    def first_output(self, minibatch: MiniBatch, number: int, blocks: list[BlockTensors], rows: Tensor) -> Tensor:
        layer, block = self.layer, blocks[-1 - self.number]
        if not layer.own_width:
            return layer.finish(None, layer.from_projected(block, rows, minibatch.dropout), None)
        own = rows[block.n_src :].reshape(block.n_dst, layer.own_width)
        return layer.finish(None, layer.join(block, rows[: block.n_src], own, minibatch.dropout), None)


def _by_rank(rows: Sequence[np.ndarray], counts: Sequence[np.ndarray]) -> np.ndarray:
    """The arrays of `rows` merged, each sorted by rank, with so many of each rank as `counts` say (int64[ranks] each).

    Those of a rank follow each other: first those of the first array.
    """
    ranks = np.concatenate([np.repeat(np.arange(len(each)), each) for each in counts])
    return np.concatenate(rows)[np.argsort(ranks, kind="stable")]


MODE = Projected
