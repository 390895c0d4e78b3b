"""A layer whose remote sources arrive multiplied by its weights: one row of H numbers each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.known_rows import names_of
from leapmpi.exchange.layer_feed import ExchangedFeed
from leapmpi.exchange.layer_graphs import LayerPlan
from leapmpi.exchange.stage import (
    Appended,
    Combine,
    ComputedRows,
    PickedRows,
    Placed,
    Route,
    RowRoutes,
    RowsInPlace,
)
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.gradient import pass_back
from leapmpi.nn.layer import Layer
from leapmpi.nn.rows import Rows
from leapmpi.nn.tensors import BlockTensors, Edges


@dataclass(frozen=True, eq=False)
class ProjectedRows:
    """The rows that a rank projects, and their use.

    original: int64[rows], the original ids of their vertices. sent_rows, local_rows: int64, the numbers of rows for
    others and of own rows among what is computed: projections of all rows, then, for layers with a pair of rows, those
    that the destinations in rows `own_rows` (int64[k]) need besides, as `own_width // source_width` rows each. Without
    `local_rows` the first rows are own ones, in their order.
    """

    original: np.ndarray
    sent_rows: np.ndarray
    local_rows: np.ndarray | None = None
    own_rows: np.ndarray | None = None


class ProjectedFeed(ExchangedFeed):
    """A feed whose matrix holds one projected row per source and, for layers with pairs, further rows of destinations.

    Each owner projects its rows, and adds its part of the weights' gradient.
    """

    def __init__(
        self,
        ctx: RankContext,
        layer: Layer,
        routes: RowRoutes | None,
        route: Route,
        rows: ProjectedRows,
        features: Callable[[], Rows] | None = None,
        combination: Combine = Placed,
    ) -> None:
        width = layer.rows.width if rows.own_rows is None else layer.rows.source_width
        super().__init__(ctx, layer, None, routes, route, width, combination, features, layer.rows.dense)
        self.original = self.on_device(rows.original)
        self.sent_rows = self.on_device(rows.sent_rows)
        self.local_rows, self.own_rows = (
            None if each is None else self.on_device(each) for each in (rows.local_rows, rows.own_rows)
        )

    @classmethod
    def of_plan(cls, ctx: RankContext, layer: Layer, block: BlockTensors, plan: LayerPlan) -> ProjectedFeed:
        """Make the feed of a layer with fixed routes; destinations are computed from rows of this rank."""
        routes = plan.by_kind
        assert routes is not None, "the kind is not raw"
        assert routes.sent_rows is not None, "the kind is projected"
        original, _, _ = names_of(ctx, plan.block, routes.vertices)
        if layer.rows.by_number:
            return cls._by_number(ctx, layer, block, plan, original)
        here = np.flatnonzero(routes.source_rows >= 0)
        local_rows, positions, own_rows = routes.source_rows[here], here, None
        if layer.rows.pair is not None:
            # Further rows of destinations follow those of all sources. They are computed here, because input rows of
            # destinations always are (`Split.destinations_as_rows`).
            own = np.arange(block.n_dst * layer.rows.own_width // layer.rows.source_width)
            local_rows = np.concatenate((local_rows, len(original) + own))
            positions, own_rows = np.concatenate((here, block.n_src + own)), routes.source_rows[: block.n_dst]
            total = block.n_src + len(own)
        else:
            total = block.n_src
        route = Route(total, positions, routes.received, routes.received_counts, routes.sent_counts)
        feed = cls(ctx, layer, plan.rows, route, ProjectedRows(original, routes.sent_rows, local_rows, own_rows))
        feed.block = block
        return feed

    @classmethod
    def _by_number(
        cls, ctx: RankContext, layer: Layer, block: BlockTensors, plan: LayerPlan, original: np.ndarray
    ) -> ProjectedFeed:
        """Make the feed of a layer that takes rows in any order: own ones as they are made, then received ones."""
        routes, own = plan.by_kind, len(original)
        assert routes is not None, "the kind is projected"
        assert routes.sent_rows is not None, "the kind is projected"
        received = own + np.arange(len(routes.received))
        # Received rows come after own ones in their order of arrival: none is moved to a place in the block.
        numbers = routes.source_rows.copy()
        numbers[routes.received] = received
        total = own + len(received)
        route = Route(total, None, received, routes.received_counts, routes.sent_counts)
        feed = cls(ctx, layer, plan.rows, route, ProjectedRows(original, routes.sent_rows), None, Appended)
        of_sources, edges = feed.on_device(numbers), block.edges
        indices = of_sources[edges.indices.long()].to(edges.indices.dtype)
        # Destinations are no longer the first rows: the layer finds theirs by number.
        own_rows = of_sources[: block.n_dst]
        feed.block = replace(block, edges=Edges(edges.indptr, indices, total), own_rows=own_rows)
        return feed

    def computed(self, rows: Rows, key: DropoutKey | None) -> ComputedRows:
        form, rows = self.layer.rows, self.layer.prefix(rows, self.original, key)
        if self.own_rows is None or form.pair is None:
            computed = form.project(rows)
        else:
            # A destination needs more numbers than a source gives; they are laid out as further rows of the same width.
            own = form.pair.own(rows, self.own_rows)
            computed = torch.cat([form.pair.source(rows), own.reshape(-1, form.source_width)])
        route = self.stage.route
        if self.local_rows is None:
            local = route.total - len(route.received_positions)
            return RowsInPlace(computed, local, self.sent_rows, route.sent_counts)
        backward = partial(pass_back, computed)
        return PickedRows(computed, self.local_rows, self.sent_rows, route.sent_counts, backward)

    def finished(self, combined: Tensor, key: DropoutKey | None) -> Tensor:
        form, block = self.layer.rows, self.block
        if self.own_rows is None or form.pair is None:
            return self.layer.finish(None, form.combine(block, combined, key), None)
        own = combined[block.n_src :].reshape(block.n_dst, form.own_width)
        return self.layer.finish(None, form.pair.join(block, combined[: block.n_src], own, key), None)
