"""Layers that are fed by rows: own rows are worked on while those of other ranks travel, and learn while gradients do.

What own rows and foreign rows contribute is computed apart: sums over their edges, or, where a layer does more than add
up, their projections. No matrix of all rows is put together before.
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
    """Base. Own rows come in the order of the block, where destinations stand first."""

    def __init__(self, ctx: RankContext, layer: Layer, block: BlockTensors, plan: LayerPlan) -> None:
        super().__init__(ctx, layer, block, plan.rows)
        assert self.hidden is not None, "hidden rows are exchanged"
        self.routes = self.hidden

    @abstractmethod
    def own(self, rows: Tensor) -> Tensor:
        """What own `rows`, after prefix, give to the neighbours; differentiable. Local."""

    @abstractmethod
    def joined(self, below: Tensor, own: Callable[[], Tensor], key: DropoutKey | None) -> Tensor:
        """What `own` gives, called while rows of `below` travel, and what others do; without gradient. Collective."""

    @abstractmethod
    def neighbours(self, joined: Tensor, key: DropoutKey | None) -> Tensor:
        """What `finish` wants of the neighbours; differentiable. Local."""

    @abstractmethod
    def own_gradient(self, gradient: Tensor) -> Tensor:
        """The part of the `gradient` of what was joined that belongs to what `own` gave. Local."""

    @abstractmethod
    def learn_others(self, gradient: Tensor, learn_own: Callable[[], Tensor]) -> Tensor:
        """Pass the `gradient` of what was joined on to other ranks. Collective.

        Returns the gradient of the output below, which `learn_own`, called while the others travel, gives in part.
        """

    def forward(self, below: Rows | None, key: DropoutKey | None) -> Tensor:
        assert isinstance(below, Tensor), "hidden rows are dense"
        learns, n_dst = torch.is_grad_enabled(), self.block.n_dst
        output_below = self._below = below.detach()

        def own() -> Tensor:
            rows = output_below.index_select(0, self.routes.local_rows).requires_grad_(learns)
            after = prefixed(self.layer, rows, names_of(self.layer, self.block, self.routes.local_positions), key)
            self._own_rows, self._given = rows, self.own(after)
            self._self_part = self.layer.self_part(after[:n_dst]) if reads_own(self.layer) else None
            return self._given.detach()

        # The layer's output is made of leaves, so that what stands below can learn bit by bit.
        self._key = key
        joined = self.joined(output_below, own, key)
        with self.ctx.phases("compute"):
            self._joined = joined.requires_grad_(learns)
            self._self_leaf = None if self._self_part is None else self._self_part.detach().requires_grad_(learns)
            self._raw = (
                self._own_rows.detach()[:n_dst].requires_grad_(learns) if reads_destinations(self.layer) else None
            )
            self._output = self.layer.finish(self._self_leaf, self.neighbours(joined, key), self._raw)
        return self._output

    def backward(self, gradient: Tensor) -> Tensor | None:
        with self.ctx.phases("compute"):
            pass_back(self._output, gradient)
            of_joined = gradient_or_zeros(self._joined)
        del gradient, self._output, self._joined

        def learn_own() -> Tensor:
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

        of_below = self.learn_others(of_joined, learn_own)
        del self._own_rows, self._given, self._self_part, self._self_leaf, self._raw, self._below, self._key
        return of_below


class OneExchangeFeed(OwnFirstFeed):
    """Base of those where the rows of all other ranks come at once."""

    @abstractmethod
    def far(self, rows: Tensor) -> Tensor:
        """What `rows` of other ranks, after prefix, give to the neighbours; differentiable. Local."""

    @abstractmethod
    def both(self, own: Tensor, far: Tensor) -> Tensor:
        """Both together. Local."""

    @abstractmethod
    def far_gradient(self, gradient: Tensor) -> Tensor:
        """The part of the `gradient` of `both` that belongs to `far`. Local."""

    def joined(self, below: Tensor, own: Callable[[], Tensor], key: DropoutKey | None) -> Tensor:
        phases, routes = self.ctx.phases, self.routes
        with phases("compute"):
            sent = below.index_select(0, routes.sent_rows)
        self._kept = routes.read_columns.kept(key, below.shape[1])
        finish = routes.stage.transfer.start(sent, self._kept)
        with phases("compute"):
            given = own()
        arrived = finish()
        with phases("compute"):
            arrived.requires_grad_(torch.is_grad_enabled())
            names = names_of(self.layer, self.block, routes.received_positions)
            self._arrived, self._far = arrived, self.far(prefixed(self.layer, arrived, names, key))
            return self.both(given, self._far.detach())

    def learn_others(self, gradient: Tensor, learn_own: Callable[[], Tensor]) -> Tensor:
        phases, routes = self.ctx.phases, self.routes
        with phases("compute"):
            pass_back(self._far, self.far_gradient(gradient))
            sent = gradient_or_zeros(self._arrived)
        del self._arrived, self._far
        finish = routes.stage.transfer.start_back(sent, self._kept)
        with phases("compute"):
            of_below = learn_own()
        returned = finish()
        with phases("compute"):
            add_by_rank(of_below, routes.sent_rows, routes.routes.sent_counts, returned)
        return of_below


class EdgeSumsFeed(OneExchangeFeed):
    """Layers whose aggregate is a sum over edges, by weights that the block alone decides."""

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
    """Layers that project rows before they combine them in ways of their own, such as attention."""

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
    """Return the edges and weights of which the aggregate of `layer` is the sum."""
    assert isinstance(layer, SumLayer), "the layer sums over edges"
    return layer.edge_sums(block, layer.bias.dtype)


def edges_from(edges: Edges, weight: Tensor, places: Tensor) -> tuple[Edges, Tensor]:
    """The edges whose source stands among `places` (int64[k]), which number their sources, and their weights."""
    numbers = torch.full((edges.sources,), -1, dtype=edges.indices.dtype, device=edges.indices.device)
    numbers[places] = torch.arange(len(places), dtype=numbers.dtype, device=numbers.device)
    numbers = numbers[edges.indices]
    kept = numbers >= 0
    before = torch.cat((edges.indptr.new_zeros(1), kept.cumsum(0)))
    return Edges(before[edges.indptr], numbers[kept], len(places)), weight[kept]


def names_of(layer: Layer, block: BlockTensors, places: Tensor) -> Tensor:
    """The original ids of the sources at `places` where the prefix of `layer` reads them."""
    return block.src_original[places] if layer.dropout else block.known_original


def prefixed(layer: Layer, rows: Tensor, names: Tensor, key: DropoutKey | None) -> Tensor:
    """Hidden `rows` after the prefix of `layer`."""
    found = layer.prefix(rows, names, key)
    assert isinstance(found, Tensor), "hidden rows are dense"
    return found


def gradient_or_zeros(leaf: Tensor) -> Tensor:
    """The gradient of `leaf`, zeros where none has come."""
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
