"""A layer for which owners of sources compute shares: one row per destination and owner, already projected.

Where messages depend on their destination (`ShareForm.sent_width`), owners of sources first receive rows of
destinations from the ranks that own these. Their gradients return last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.known_rows import partial_block, received_block
from leapmpi.exchange.layer_feed import ExchangedFeed
from leapmpi.exchange.layer_graphs import LayerPlan
from leapmpi.exchange.read_columns import Kept, ReadColumns, reader_of
from leapmpi.exchange.split_softmax import SplitSoftmax
from leapmpi.exchange.stage import Combine, ComputedApart, ComputedRows, Route, RowRoutes, Stage
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.gradient import pass_all_back, pass_back
from leapmpi.nn.layer import Layer, finish_step, plain_prefix, share_steps
from leapmpi.nn.rows import Rows, select
from leapmpi.nn.share_forms import SUM, Combination, PartialStep, SumCombination
from leapmpi.nn.sum_layer import SumLayer
from leapmpi.nn.tensors import BlockTensors, PartialBlock


@dataclass(frozen=True, eq=False)
class SentFirst:
    """Rows of destinations that owners receive before they compute shares.

    route: one matrix row for each distinct destination. original: int64[own rows + rows for others], original ids;
    features: a function that gathers their rows. destinations, numbers: int64[k], the destinations of the partial block
    that read a row, and its number. of_slots: with slots, a row of each vertex of `features`, int64[vertices], and the
    place of each row among all their slots, int64[own rows + rows for others].
    """

    route: Route
    original: np.ndarray
    features: Callable[[], Rows]
    destinations: np.ndarray
    numbers: np.ndarray
    of_slots: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True, eq=False)
class MixedRows:
    """Projected rows that replace shares where they are fewer.

    sent_rows: int64[k], the rows that are projected for others. sent_order: int64[sent], the order in which shares of
    others' destinations, and then these rows, are sent. received: bool[received], True for received items that are
    rows; block: their edges to own destinations.
    """

    sent_rows: np.ndarray
    sent_order: np.ndarray
    received: np.ndarray
    block: PartialBlock

    @cached_property
    def places(self) -> tuple[Tensor, Tensor]:
        """The places of shares and of rows among the received items: int64 each, on the device of `block`."""
        device = self.block.sampled.device
        shares, rows = np.flatnonzero(~self.received), np.flatnonzero(self.received)
        return torch.from_numpy(shares).to(device), torch.from_numpy(rows).to(device)


class MixedCombination(Combination):
    """Shares add up; received rows are summed over their edges here."""

    def __init__(self, layer: Layer, rows: MixedRows, local: Tensor, positions: Tensor | None, total: int) -> None:
        assert layer.shares is not None, "the layer offers shares"
        assert layer.shares.raw_share is not None, "its shares are sums of rows"
        self._raw_share, self._block = layer.shares.raw_share, rows.block
        self._share_items, self._row_items = rows.places
        self._shares = SumCombination(local, positions, total)
        self.rows = self._shares.rows

    def add(self, arrived: Tensor, positions: Tensor) -> None:
        self._shares.add(arrived.index_select(0, self._share_items), positions.index_select(0, self._share_items))
        self._received = arrived.index_select(0, self._row_items).requires_grad_(torch.is_grad_enabled())
        self._summed = self._raw_share(self._block, self._received)
        self.rows += self._summed.detach()

    def local_gradient(self, gradient: Tensor) -> Tensor:
        return self._shares.local_gradient(gradient)

    def arrived_gradient(self, gradient: Tensor) -> Tensor:
        found = gradient.new_empty((len(self._share_items) + len(self._row_items), gradient.shape[1]))
        found[self._share_items] = self._shares.arrived_gradient(gradient)
        pass_back(self._summed, gradient)
        assert self._received.grad is not None, "the backward pass has reached it"
        found[self._row_items] = self._received.grad
        return found


class PartialFeed(ExchangedFeed):
    """A feed whose matrix holds the combination of the shares of every destination.

    `shares` is the partial block of this rank's rows: own destinations first, then those of other ranks. `order`
    (int64) lists the rows of `ShareForm.partial` in the order of their use; None for theirs. `destinations` is the
    number of own ones. `vertices` are the own destinations and those of other ranks, int64 ids. `own_block` is the
    block of the own ones, for layers that add terms of their own to shares.
    """

    def __init__(
        self,
        ctx: RankContext,
        layer: Layer,
        routes: RowRoutes | None,
        route: Route,
        shares: PartialBlock,
        destinations: int,
        features: Callable[[], Rows] | None = None,
        order: np.ndarray | None = None,
        first: SentFirst | None = None,
        mixed: MixedRows | None = None,
        vertices: Sequence[np.ndarray] = (),
        own_block: BlockTensors | None = None,
        softmax: SplitSoftmax | None = None,
    ) -> None:
        # Received rows are summed by the combination, so that the stage sees one kind of item.
        assert layer.shares is not None, "the layer offers shares"
        self.form = layer.shares
        combination: Combine = self.form.layout.combination
        if mixed is not None:
            combination = partial(MixedCombination, layer, mixed)
        super().__init__(ctx, layer, None, routes, route, self.form.width, combination, features)
        self.mixed = mixed
        if mixed is not None:
            self.sent_rows, self.sent_order = self.on_device(mixed.sent_rows), self.on_device(mixed.sent_order)
        self.shares, self.destinations, self.first = shares, destinations, first
        self.order = None if order is None else self.on_device(order)
        self.first_stage = None if first is None else Stage(ctx, first.route, self.form.sent_width)
        self._vertices, self.own_block, self.softmax = vertices, own_block, softmax
        self.read_columns = ReadColumns(ctx, reader_of(ctx, layer) if vertices else None, self._names)

    @classmethod
    def of_plan(cls, ctx: RankContext, layer: Layer, plan: LayerPlan) -> PartialFeed:
        """Make the feed of a layer with fixed routes."""
        assert layer.shares is not None, "the layer offers shares"
        assert layer.shares.layout is SUM, "no other shares are chosen for fixed routes"
        routes = plan.by_kind
        assert routes is not None, "the kind is not raw"
        route = Route(plan.block.n_dst, None, routes.received, routes.received_counts, routes.sent_counts)
        # Some owners send a row instead of shares, where one source feeds many destinations.
        mixed = None
        if routes.mixed is not None:
            edges = received_block(ctx, plan.block, routes.mixed.edge_rows, routes.mixed.vertices)
            mixed = MixedRows(routes.mixed.sent_rows, routes.mixed.sent_order, routes.mixed.are_rows, edges)
        assert routes.foreign is not None, "the kind is partial"
        vertices = plan.block.dst, routes.foreign.known.destinations
        block = partial_block(ctx, plan)
        return cls(ctx, layer, plan.rows, route, block, plan.block.n_dst, mixed=mixed, vertices=vertices)

    def _names(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the original ids of the destinations whose shares are sent, and of those whose shares are received."""
        own, foreign = map(self.ctx.sampler.original_ids, self._vertices)
        if self.mixed is None:
            return foreign, own[self.stage.route.received_positions]
        return foreign, own[self.stage.route.received_positions[~self.mixed.received]]

    def kept(self, key: DropoutKey | None) -> Kept:
        """Drop the columns of shares that dropout drops of their destinations; projected rows are read whole."""
        sent, received = found = self.read_columns.kept(key, self.form.width)
        if self.mixed is None or sent is None or received is None:
            return found
        whole = np.ones((len(self.mixed.sent_rows), sent.shape[1]), np.uint8)
        of_items = np.ones((len(self.mixed.received), sent.shape[1]), np.uint8)
        of_items[~self.mixed.received] = received
        return np.concatenate((sent, whole))[self.mixed.sent_order], of_items

    def output(self, rows: Rows | None, key: DropoutKey | None) -> Tensor:
        # Shares depend on rows of destinations here, so these cross ranks first, in an exchange of their own.
        self._sent = None
        if self.first is not None and self.first_stage is not None:
            with self.ctx.phases("compute"):
                assert self.form.project_sent is not None, "destinations send something first"
                of_slots, names = self.first.of_slots, self.first.original
                original = self.on_device(names if of_slots is None else names[of_slots[0]])
                read = self.layer.prefix(self.first.features(), original, key)
                sent = self.form.project_sent(read, original)
                if of_slots is not None:
                    sent = sent.view(-1, self.form.sent_width).index_select(0, self.on_device(of_slots[1]))
                computed = ComputedRows(sent, self.first.route.local_count)
            self._sent = self.first_stage.forward(computed)
        return super().output(rows, key)

    def computed(self, rows: Rows, key: DropoutKey | None) -> ComputedRows:
        """Compute shares of others' destinations first, unless both need the same projected rows.

        Collective where softmaxes are split.
        """
        layer, block, local = self.layer, self._block_with_sent(), self.stage.route.local_count
        if self.softmax is not None:
            return ComputedRows(self.form.partial(self._begun(self.softmax, block, rows, key), rows, key), local)
        # Rows that travel among shares would pass the input layer a second time.
        if self.order is None and (self.mixed is None or layer.inputs is None):
            steps = share_steps(layer, block, local, rows, key)
            if steps is not None:
                return ComputedApart(self._with_rows(steps[0], rows, key), steps[1])
        shares = self.form.partial(block, rows, key)
        if self.mixed is not None:
            sent = torch.cat([shares[local:], self._projected(rows, key)]).index_select(0, self.sent_order)
            return ComputedRows(torch.cat([shares[:local], sent]), local)
        return ComputedRows(shares if self.order is None else shares.index_select(0, self.order), local)

    def finished(self, combined: Tensor, key: DropoutKey | None) -> Tensor:
        sampled = self.shares.sampled[: self.destinations]
        own, neighbours = self.form.combined(sampled, combined)
        if self.own_block is not None and self.form.added is not None:
            neighbours = self.form.added(self.own_block, neighbours)
        self._finished = finish_step(self.layer, neighbours) if neighbours is combined else None
        return self.layer.finish(own, neighbours, None) if self._finished is None else self._finished[0]

    def backward_output(self, output: Tensor, gradient: Tensor) -> None:
        if self._finished is None:
            super().backward_output(output, gradient)
        else:
            # The output is in the memory of the combined matrix.
            output.grad = self._finished[1](gradient)
        del self._finished

    def count(self) -> None:
        super().count()
        if self.first_stage is not None:
            self.first_stage.transfer.count()
        if self.softmax is not None:
            self.softmax.count()

    def backward_stages(self) -> None:
        super().backward_stages()
        if self.softmax is not None:
            self.softmax.backward()
        if self.first_stage is not None:
            del self._sent
            self.first_stage.backward()

    def _begun(self, softmax: SplitSoftmax, block: PartialBlock, rows: Rows, key: DropoutKey | None) -> PartialBlock:
        """Begin shares of `block`, and return it with what they are made of, once logarithms have crossed ranks."""
        assert self.form.begin is not None, "softmaxes are split for layers that normalise shares"
        block = replace(block, runs=softmax.runs)
        begun = self.form.begin(block, rows, key)

        # Leaves: shares and logarithms have gradients at different times, and are made of the same values.
        leaves = [each.detach().requires_grad_(torch.is_grad_enabled()) for each in begun]

        def backward(of_logs: Tensor) -> None:
            *gradients, of_parts = (torch.zeros_like(each) if each.grad is None else each.grad for each in leaves)
            pass_all_back(list(zip(begun, (*gradients, of_parts + of_logs), strict=True)))

        return replace(block, begun=(*leaves, softmax.forward(begun[-1].detach(), backward)))

    def _with_rows(self, step: PartialStep, rows: Rows, key: DropoutKey | None) -> PartialStep:
        """Add the projected rows that are sent among them to shares for others."""
        if self.mixed is None:
            return step
        shares, backward_shares = step
        projected, count, order = self._projected(rows, key), len(step[0]), self.sent_order

        def backward(gradient: Tensor) -> None:
            of_items = torch.empty_like(gradient)
            # `order` mixes shares and rows by receiver, so the gradient is put back before it is divided.
            of_items[order] = gradient
            backward_shares(of_items[:count])
            pass_back(projected, of_items[count:])

        return torch.cat([shares, projected.detach()]).index_select(0, order), backward

    def _projected(self, rows: Rows, key: DropoutKey | None) -> Tensor:
        """Project the rows that are sent as such, float[k, width]; differentiable."""
        layer, chosen = self.layer, self.sent_rows
        if plain_prefix(layer) and isinstance(layer, SumLayer) and type(layer).project is SumLayer.project:
            return layer.neighbour(rows, chosen)
        names = self.shares.src_original.index_select(0, chosen)
        return layer.project(layer.prefix(select(rows, chosen), names, key))

    def _block_with_sent(self) -> PartialBlock:
        """Return the partial block with the rows received for its destinations."""
        if self.first is None or self._sent is None:
            return self.shares
        read = self.first.destinations, self.first.numbers
        destinations, numbers = (torch.from_numpy(each).to(self.ctx.device) for each in read)
        if self.first.of_slots is not None:
            return replace(self.shares, sent=self._sent.index_select(0, numbers))
        sent = self._sent.new_zeros(self.shares.n_dst, self._sent.shape[1])
        return replace(self.shares, sent=sent.index_copy(0, destinations, self._sent.index_select(0, numbers)))
