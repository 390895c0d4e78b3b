"""`projected`: a remote row arrives multiplied by the layer's weights, H numbers instead of F.

It serves every layer that offers the split, attention included. Gradients of the projected rows travel back, and the
owner adds its share of the weights' gradient. Where destinations need numbers of their own (`RowForm.pair`), these
follow as rows of the same width, for destinations alone.
"""

from __future__ import annotations

import numpy as np

from leapmpi.exchange.computed_mode import NUMBER, ComputedRowsMode
from leapmpi.exchange.feeds.projected import ProjectedFeed, ProjectedRows
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.mode import ModeMember
from leapmpi.exchange.stage import Route, by_rank
from leapmpi.plan.distinct_vertices import DistinctVertices
from leapmpi.plan.homes import home_of
from leapmpi.sampling.block import Block


class Projected(ComputedRowsMode):
    """The mode in which owners project the requested rows; the layer's matrix holds one row per source."""

    order = 3
    description = "projected rows of remote vertices and their gradients"

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Count an id, a projected row and its gradient for each remote source and destination of a micro-batch."""
        ctx, size = self.ctx, self.layer.dtype.itemsize
        id_bytes, total = ctx.features.id_codec.id_bytes, 0
        for micro_batch in minibatch.micro_batches:
            for ids, width in self._requests(micro_batch):
                remote = int((home_of(ids, ctx.rank_offsets) != ctx.rank).sum())
                total += remote * (id_bytes + 2 * width * size)
        return total

    def _requests(self, micro_batch: MicroBatch) -> list[tuple[np.ndarray, int]]:
        """List vertices (int64) with the width of their projections: sources, then destinations where needed."""
        block, layer = micro_batch.first_block, self.layer
        sources = (block.src, layer.rows.source_width if layer.rows.own_width else layer.rows.width)
        return [sources, (block.dst, layer.rows.own_width)] if layer.rows.own_width else [sources]

    def plan_bytes(self, block: Block) -> int:
        """Estimate two ids of each source, further rows of destinations, the positions of rows and their order."""
        layer, ids, rows = self.layer, block.n_src, block.n_src
        if not layer.rows.own_width:
            return NUMBER * (2 * ids + rows)
        rows += block.n_dst * layer.rows.own_width // layer.rows.source_width
        return NUMBER * (2 * ids + block.n_dst + 2 * rows)

    def feed(self, minibatch: MiniBatch, micro_batch: MicroBatch) -> ProjectedFeed:
        """Request the projected rows of remote sources from their owners. Collective."""
        ctx, block = self.ctx, micro_batch.first_block
        route, vertices = self.request_rows(block.src)
        byte_counters = ctx.communicator.byte_counters
        byte_counters.add_rows("local", route.local_count)
        byte_counters.add_rows("remote", len(route.received_positions))
        # A row that is read here, or by several other ranks, is projected once.
        own = vertices[: route.local_count]
        projected = DistinctVertices.of(own, vertices)
        rows = ProjectedRows(ctx.sampler.original_ids(projected.ids), projected.numbers(vertices[len(own) :]))
        if self.layer.rows.own_width:
            route, rows = self._with_destinations(route, rows, projected, block.dst)
        return ProjectedFeed(ctx, self.layer, None, route, rows, self.features_of(projected.ids))

    def _with_destinations(
        self, route: Route, rows: ProjectedRows, projected: DistinctVertices, ids: np.ndarray
    ) -> tuple[Route, ProjectedRows]:
        """Request the further numbers of the destinations `ids`, as more rows of the matrix. Collective."""
        own_route, destinations = self.request_rows(ids)
        # A destination may take several rows of a source's width: they follow each other.
        each = self.layer.rows.own_width // self.layer.rows.source_width

        def places(positions: np.ndarray) -> np.ndarray:
            return (route.total + positions[:, None] * each + np.arange(each)).reshape(-1)

        assert route.local_positions is not None, "some sources may be remote"
        assert own_route.local_positions is not None, "so may destinations"
        own, local_own = len(projected.ids) + np.arange(each * len(destinations)), each * own_route.local_count
        return (
            Route(
                total=route.total + each * len(ids),
                local_positions=np.concatenate((route.local_positions, places(own_route.local_positions))),
                received_positions=by_rank(
                    (route.received_positions, places(own_route.received_positions)),
                    (route.received_counts, own_route.received_counts * each),
                ),
                received_counts=route.received_counts + own_route.received_counts * each,
                sent_counts=route.sent_counts + own_route.sent_counts * each,
            ),
            ProjectedRows(
                original=rows.original,
                sent_rows=by_rank((rows.sent_rows, own[local_own:]), (route.sent_counts, own_route.sent_counts * each)),
                local_rows=np.concatenate((np.arange(route.local_count), own[:local_own])),
                # Every destination is a source too, so the same rank has requested its row.
                own_rows=projected.numbers(destinations),
            ),
        )


MEMBER = ModeMember(Projected)
