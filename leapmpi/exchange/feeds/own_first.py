"""Layers fed by rows, with overlap: own rows are computed while others travel, and backpropagated while gradients do.

The contributions of own rows and of foreign rows are computed apart: sums over their edges, or projections where a
layer does more than add up. No matrix of all rows is built first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.layer_feed import BlockFeed
from leapmpi.exchange.layer_graphs import LayerPlan
from leapmpi.exchange.stage import add_by_rank
from leapmpi.nn.aggregate import weighted_sum
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.gradient import pass_all_back, pass_back
from leapmpi.nn.layer import Layer, projects_first, reads_destinations, reads_own
from leapmpi.nn.rows import Rows
from leapmpi.nn.sum_layer import SumLayer
from leapmpi.nn.tensors import BlockTensors, Edges


class OwnFirstFeed(BlockFeed):
    """Base of these feeds. Own rows follow the order of the block, with destinations first."""

    def __init__(self, ctx: RankContext, layer: Layer, block: BlockTensors, plan: LayerPlan) -> None:
        super().__init__(ctx, layer, block, plan.rows)
        assert self.hidden is not None, "hidden rows are exchanged"
        self.routes = self.hidden

    @abstractmethod
    def own(self, rows: Tensor) -> Tensor:
        """Compute the contribution of own `rows`, after prefix, to the neighbours; differentiable. Local."""

    @abstractmethod
    def joined(self, below: Tensor, own: Callable[[], Tensor], key: DropoutKey | None) -> Tensor:
        """Join the result of `own`, called while rows of `below` travel, with that of others' rows. Collective.

        The result has no gradient.
        """

    @abstractmethod
    def neighbours(self, joined: Tensor, key: DropoutKey | None) -> Tensor:
        """Compute the input of `finish` for the neighbours; differentiable. Local."""

    @abstractmethod
    def own_gradient(self, gradient: Tensor) -> Tensor:
        """Take the part of the `gradient` of the joined result that belongs to the result of `own`. Local."""

    @abstractmethod
    def backward_others(self, gradient: Tensor, backward_own: Callable[[], Tensor]) -> Tensor:
        """Pass the `gradient` of the joined result on to other ranks. Collective.

        Returns the gradient of the output below. `backward_own`, called while the others travel, gives a part of it.
        """

    def forward(self, below: Rows | None, key: DropoutKey | None) -> Tensor:
        """Compute the layer, with own rows first, so that their work hides the travel of the others. Collective."""
        assert isinstance(below, Tensor), "hidden rows are dense"
        trains, n_dst = torch.is_grad_enabled(), self.block.n_dst
        output_below = self._below = below.detach()

        def own() -> Tensor:
            rows = output_below.index_select(0, self.routes.local_rows).requires_grad_(trains)
            after = prefixed(self.layer, rows, names_of(self.layer, self.block, self.routes.local_positions), key)
            self._own_rows, self._given = rows, self.own(after)
            self._self_part = self.layer.self_part(after[:n_dst]) if reads_own(self.layer) else None
            return self._given.detach()

        # Leaves cut the autograd graph here, so that `backward` can pass own and foreign rows back one after the other.
        self._key = key
        # `own` is called while messages travel.
        joined = self.joined(output_below, own, key)
        with self.ctx.phases("compute"):
            self._joined = joined.requires_grad_(trains)
            self._self_leaf = None if self._self_part is None else self._self_part.detach().requires_grad_(trains)
            self._raw = (
                self._own_rows.detach()[:n_dst].requires_grad_(trains) if reads_destinations(self.layer) else None
            )
            self._output = self.layer.finish(self._self_leaf, self.neighbours(joined, key), self._raw)
        return self._output

    def backward(self, gradient: Tensor) -> Tensor | None:
        """Return the gradient of the output below; own parts are computed while those of others travel. Collective."""
        with self.ctx.phases("compute"):
            pass_back(self._output, gradient)
            of_joined = gradient_or_zeros(self._joined)
        del gradient, self._output, self._joined

        # Own rows enter through several tensors. One backward pass for all of them goes through `prefix` once.
        def backward_own() -> Tensor:
            pairs = [(self._given, self.own_gradient(of_joined))]
            if self._self_part is not None and self._self_leaf is not None:
                pairs.append((self._self_part, gradient_or_zeros(self._self_leaf)))
            pass_all_back(pairs)
            of_rows = gradient_or_zeros(self._own_rows)
            if self._raw is not None:
                of_rows[: len(self._raw)] += gradient_or_zeros(self._raw)
            of_below = torch.zeros_like(self._below)
            of_below[self.routes.local_rows] = of_rows
            return of_below

        of_below = self.backward_others(of_joined, backward_own)
        del self._own_rows, self._given, self._self_part, self._self_leaf, self._raw, self._below, self._key
        return of_below


class OneExchangeFeed(OwnFirstFeed):
    """Base of those where the rows of all other ranks arrive at once."""

    @abstractmethod
    def far(self, rows: Tensor) -> Tensor:
        """Compute the contribution of `rows` of other ranks, after prefix, to the neighbours; differentiable. Local."""

    @abstractmethod
    def both(self, own: Tensor, far: Tensor) -> Tensor:
        """Combine both. Local."""

    @abstractmethod
    def far_gradient(self, gradient: Tensor) -> Tensor:
        """Take the part of the `gradient` of `both` that belongs to `far`. Local."""

    def joined(self, below: Tensor, own: Callable[[], Tensor], key: DropoutKey | None) -> Tensor:
        phases, routes = self.ctx.phases, self.routes
        with phases("compute"):
            sent = below.index_select(0, routes.sent_rows)
        kept, transfer = routes.read_columns.kept(key, below.shape[1]), routes.stage.transfer
        finish = transfer.start(sent, kept)
        with phases("compute"):
            # Rows of others travel meanwhile.
            given = own()
        arrived = finish()
        with phases("compute"):
            if torch.is_grad_enabled():
                self._kept = transfer.kept_back(kept, sent, arrived)
                arrived.requires_grad_()
            names = names_of(self.layer, self.block, routes.received_positions)
            self._arrived, self._far = arrived, self.far(prefixed(self.layer, arrived, names, key))
            return self.both(given, self._far.detach())

    def backward_others(self, gradient: Tensor, backward_own: Callable[[], Tensor]) -> Tensor:
        phases, routes = self.ctx.phases, self.routes
        with phases("compute"):
            pass_back(self._far, self.far_gradient(gradient))
            sent = gradient_or_zeros(self._arrived)
        del self._arrived, self._far
        finish = routes.stage.transfer.start_back(sent, self._kept)
        del self._kept
        with phases("compute"):
            # Gradients for others travel meanwhile.
            of_below = backward_own()
        returned = finish()
        with phases("compute"):
            add_by_rank(of_below, routes.sent_rows, routes.routes.sent_counts, returned)
        return of_below


class EdgeSumsFeed(OneExchangeFeed):
    """Layers whose aggregate is a sum over edges, with weights that depend on the block alone."""

    def __init__(self, ctx: RankContext, layer: Layer, block: BlockTensors, plan: LayerPlan) -> None:
        super().__init__(ctx, layer, block, plan)
        edges, weight = edge_sums(layer, block)
        self.of_own = edges_from(edges, weight, self.routes.local_positions)
        self.of_far = edges_from(edges, weight, self.routes.received_positions)

    def own(self, rows: Tensor) -> Tensor:
        self._first = projects_first(self.layer, self.block, rows)
        return self._sums(rows, *self.of_own)

    def far(self, rows: Tensor) -> Tensor:
        return self._sums(rows, *self.of_far)

    def both(self, own: Tensor, far: Tensor) -> Tensor:
        return own + far

    def neighbours(self, joined: Tensor, key: DropoutKey | None) -> Tensor:
        return joined if self._first else self.layer.project(joined)

    def own_gradient(self, gradient: Tensor) -> Tensor:
        return gradient

    def far_gradient(self, gradient: Tensor) -> Tensor:
        return gradient

    def _sums(self, rows: Tensor, edges: Edges, weight: Tensor) -> Tensor:
        return weighted_sum(edges, self.layer.project(rows) if self._first else rows, weight)


class ProjectionsFeed(OneExchangeFeed):
    """Layers that project rows, then combine them by a rule of their own, such as attention."""

    def own(self, rows: Tensor) -> Tensor:
        return self.layer.project(rows)

    def far(self, rows: Tensor) -> Tensor:
        return self.layer.project(rows)

    def both(self, own: Tensor, far: Tensor) -> Tensor:
        rows = own.new_empty((self.block.n_src, own.shape[1]))
        rows[self.routes.local_positions] = own
        rows[self.routes.received_positions] = far
        return rows

    def neighbours(self, joined: Tensor, key: DropoutKey | None) -> Tensor:
        return self.layer.aggregate(self.block, joined, key)

    def own_gradient(self, gradient: Tensor) -> Tensor:
        return gradient.index_select(0, self.routes.local_positions)

    def far_gradient(self, gradient: Tensor) -> Tensor:
        return gradient.index_select(0, self.routes.received_positions)


def edge_sums(layer: Layer, block: BlockTensors) -> tuple[Edges, Tensor]:
    """Return the edges and weights (float[edges]) that the aggregate of `layer` sums over."""
    assert isinstance(layer, SumLayer), "the layer sums over edges"
    return layer.edge_sums(block, layer.dtype)


def edges_from(edges: Edges, weight: Tensor, places: Tensor) -> tuple[Edges, Tensor]:
    """Return the edges, with their weights, from the sources at `places` (int64[k]), numbered by these."""
    numbers = torch.full((edges.sources,), -1, dtype=edges.indices.dtype, device=edges.indices.device)
    numbers[places] = torch.arange(len(places), dtype=numbers.dtype, device=numbers.device)
    numbers = numbers[edges.indices]
    kept = numbers >= 0
    before = torch.cat((edges.indptr.new_zeros(1), kept.cumsum(0)))
    return Edges(before[edges.indptr], numbers[kept], len(places)), weight[kept]


def names_of(layer: Layer, block: BlockTensors, places: Tensor) -> Tensor:
    """Return the original ids (int64) of the sources at `places` if the prefix of `layer` reads them, else none."""
    reads = layer.dropout or layer.traits.reads_names
    return block.src_original[places] if reads else block.known_original


def prefixed(layer: Layer, rows: Tensor, names: Tensor, key: DropoutKey | None) -> Tensor:
    """Apply the prefix of `layer` to hidden `rows`."""
    found = layer.prefix(rows, names, key)
    assert isinstance(found, Tensor), "hidden rows are dense"
    return found


def gradient_or_zeros(leaf: Tensor) -> Tensor:
    """Return the gradient of `leaf`, zeros where it has none."""
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
