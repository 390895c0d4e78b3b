"""Sums over edges with the rows of one other rank at a time: own rows and one received block are held.

Sequential aggregation and rematerialisation (SAR; Mostafa, MLSys 2022): the share of each owner is added up and its
rows are dropped. Gradients of rows depend on the rows only where they were normalised; then they are sent once more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.own_first import (
    OwnFirstFeed,
    edge_sums,
    edges_from,
    gradient_or_zeros,
    names_of,
    prefixed,
)
from leapmpi.exchange.layer_feed import HiddenInput
from leapmpi.exchange.layer_graphs import LayerPlan
from leapmpi.exchange.stage import Transfer
from leapmpi.nn.aggregate import weighted_sum
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.gradient import pass_back
from leapmpi.nn.layer import Layer
from leapmpi.nn.tensors import BlockTensors


class Round:
    """A round of a ring: rows go `distance` ranks up, and arrive from the rank as far down.

    sent_rows: int64, rows of the output below that are sent. received: the slice of received rows in those of `routes`.
    """

    def __init__(self, ctx: RankContext, routes: HiddenInput, distance: int) -> None:
        whole, ranks = routes.routes, np.arange(ctx.ranks)
        to, source = (ctx.rank + distance) % ctx.ranks, (ctx.rank - distance) % ctx.ranks
        sent, received = whole.sent_counts * (ranks == to), whole.received_counts * (ranks == source)
        self.phases, self.transfer = ctx.phases, Transfer(ctx, sent, received, routes.stage.transfer.width)
        self.sent_rows = routes.sent_rows[_of_rank(whole.sent_counts, to)]
        self.received = _of_rank(whole.received_counts, source)

    def send(self, below: Tensor) -> Callable[[], Tensor]:
        """Send rows of `below`; the result waits for those that arrive. Collective."""
        with self.phases("compute"):
            rows = below.index_select(0, self.sent_rows)
        return self.transfer.start(rows)


class OwnerByOwnerFeed(OwnFirstFeed):
    """A layer that aggregates before it projects, so that gradients of weights need no row of another rank."""

    def __init__(self, ctx: RankContext, layer: Layer, block: BlockTensors, plan: LayerPlan) -> None:
        super().__init__(ctx, layer, block, plan)
        self.of_own = edges_from(*edge_sums(layer, block), self.routes.local_positions)
        self.rounds = [Round(ctx, self.routes, distance) for distance in range(1, ctx.ranks)]
        self.sources = [_Source(self, self.routes.received_positions[each.received]) for each in self.rounds]

    def own(self, rows: Tensor) -> Tensor:
        edges, weight = self.of_own
        return weighted_sum(edges, rows, weight)

    def joined(self, below: Tensor, own: Callable[[], Tensor], key: DropoutKey | None) -> Tensor:
        phases, sums = self.ctx.phases, None
        for each, source in zip(self.rounds, self.sources, strict=True):
            finish = each.send(below)
            # Own rows hide the first round; rows of one rank are held at a time.
            if sums is None:
                with phases("compute"):
                    sums = own().clone()
            arrived = finish()
            with phases("compute"), torch.no_grad():
                sums += source.sums(arrived, key)
        assert sums is not None, "there are other ranks"
        return sums

    def neighbours(self, joined: Tensor, key: DropoutKey | None) -> Tensor:
        return self.layer.project(joined)

    def own_gradient(self, gradient: Tensor) -> Tensor:
        return gradient

    def backward_others(self, gradient: Tensor, backward_own: Callable[[], Tensor]) -> Tensor:
        phases, below, of_below = self.ctx.phases, self._below, None
        for each, source in zip(self.rounds, self.sources, strict=True):
            # Sums are linear in rows that are not normalised, so zeros of the same shape give the same gradient.
            normalised = self.layer.norm is not None
            rows = each.send(below)() if normalised else below.new_zeros((each.transfer.received, below.shape[1]))
            with phases("compute"):
                rows.requires_grad_()
                pass_back(source.sums(rows, self._key), gradient)
                sent = gradient_or_zeros(rows)
            del rows
            finish = each.transfer.start_back(sent)
            if of_below is None:
                with phases("compute"):
                    of_below = backward_own()
            returned = finish()
            with phases("compute"):
                of_below.index_add_(0, each.sent_rows, returned)
        assert of_below is not None, "there are other ranks"
        return of_below


class _Source:
    """The edges from the sources at `places` of a block, int64[k]."""

    def __init__(self, step: OwnerByOwnerFeed, places: Tensor) -> None:
        self.layer = step.layer
        self.edges, self.weight = edges_from(*edge_sums(step.layer, step.block), places)
        self.names = names_of(step.layer, step.block, places)

    def sums(self, rows: Tensor, key: DropoutKey | None) -> Tensor:
        """Sum received `rows` over their edges to the destinations: float[n_dst, in]."""
        return weighted_sum(self.edges, prefixed(self.layer, rows, self.names, key), self.weight)


def _of_rank(counts: np.ndarray, rank: int) -> slice:
    """Return the slice of the rows of `rank`, where `counts` (int64[ranks]) are those of each rank."""
    end = int(counts[: rank + 1].sum())
    return slice(end - int(counts[rank]), end)
