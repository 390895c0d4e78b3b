"""Layers for which ranks compute rows for each other: projected rows, or partial sums of several owners.

What others need is computed and sent first; what is for this rank alone is done while messages travel.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from leapmpi.engine.context import RankContext
from leapmpi.full_batch.layer_graphs import LayerPlan
from leapmpi.full_batch.steps.layer_step import Exchange, LayerStep
from leapmpi.full_batch.steps.own_and_foreign import names_of, partial_block
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.gradient import pass_back
from leapmpi.nn.layer import Layer
from leapmpi.nn.rows import Rows
from leapmpi.nn.tensors import BlockTensors


class KindStep(LayerStep):
    """Base of steps in which ranks compute rows for others. All but `output` and `learn` is local."""

    def __init__(self, ctx: RankContext, layer: Layer, block: BlockTensors, plan: LayerPlan) -> None:
        super().__init__(ctx, layer, block, plan)
        assert plan.by_kind is not None, "the kind is not raw"
        routes = plan.by_kind
        self.exchange = Exchange(ctx, routes.sent_counts, routes.received_counts)
        self.received = torch.from_numpy(routes.received).to(ctx.device)

    @abstractmethod
    def answers(self, rows: Rows, key: DropoutKey | None) -> Tensor:
        """What others need of the matrix `rows`, by rank; without gradient."""

    @abstractmethod
    def own(self, rows: Rows, key: DropoutKey | None) -> Tensor:
        """What the layer reads, as far as it is computed here; without gradient."""

    @abstractmethod
    def add(self, arrived: Tensor, combined: Tensor) -> None:
        """Complete what the layer reads by what `arrived`."""

    @abstractmethod
    def finished(self, combined: Tensor, key: DropoutKey | None) -> Tensor:
        """The layer's output; differentiable."""

    @abstractmethod
    def learn_own(self, gradient: Tensor) -> None:
        """Pass the `gradient` of what was combined on to what is computed here for this rank."""

    @abstractmethod
    def learn_answers(self, returned: Tensor) -> None:
        """Pass on what others `returned`: the gradient of the answers."""

    def output(self, rows: Rows, key: DropoutKey | None) -> Tensor:
        with self.ctx.phases("compute"):
            answers = self.answers(rows, key)
        finish = self.exchange.start(answers)
        with self.ctx.phases("compute"):
            combined = self.own(rows, key)
        arrived = finish()
        with self.ctx.phases("compute"):
            self.add(arrived, combined)
            self._combined = combined.requires_grad_(torch.is_grad_enabled())
            return self.finished(combined, key)

    def learn(self) -> None:
        combined = self._combined
        del self._combined
        with self.ctx.phases("compute"):
            gradient = torch.zeros_like(combined) if combined.grad is None else combined.grad
            sent = gradient.index_select(0, self.received)
        finish = self.exchange.start_back(sent)
        with self.ctx.phases("compute"):
            self.learn_own(gradient)
        returned = finish()
        with self.ctx.phases("compute"):
            self.learn_answers(returned)


class ProjectedStep(KindStep):
    """Rows arrive multiplied by the layer's weights.

    Of layers in which destinations need numbers of their own (`Layer.own_width`), which are computed from rows that are
    here, these follow as rows of the same width.
    """

    def __init__(self, ctx: RankContext, layer: Layer, block: BlockTensors, plan: LayerPlan) -> None:
        super().__init__(ctx, layer, block, plan)
        routes = plan.by_kind
        assert routes is not None, "the kind is not raw"
        assert routes.sent_rows is not None, "the kind is projected"
        original, _, _ = names_of(ctx, plan.block, routes.vertices)
        self.original = torch.from_numpy(original).to(ctx.device)
        self.sent_rows = torch.from_numpy(routes.sent_rows).to(ctx.device)
        here = np.flatnonzero(routes.source_rows >= 0)
        self.local_positions = torch.from_numpy(here).to(ctx.device)
        self.local_rows = torch.from_numpy(routes.source_rows[here]).to(ctx.device)
        self.own_rows = torch.from_numpy(routes.source_rows[: block.n_dst]).to(ctx.device)

    def answers(self, rows: Rows, key: DropoutKey | None) -> Tensor:
        layer = self.layer
        if layer.own_width:
            rows = layer.prefix(rows, self.original, key)
            own = layer.project_own(rows, self.own_rows)
            self._computed = torch.cat([layer.project_source(rows), own.reshape(-1, layer.source_width)])
        else:
            self._computed = layer.projected(rows, self.original, key)
        return self._computed.detach().index_select(0, self.sent_rows)

    def own(self, rows: Rows, key: DropoutKey | None) -> Tensor:
        computed = self._computed.detach()
        count, own = self.block.n_src, computed[len(self.original) :]
        matrix = computed.new_empty((count + len(own), computed.shape[1]))
        matrix[self.local_positions] = computed[self.local_rows]
        matrix[count:] = own
        return matrix

    def add(self, arrived: Tensor, combined: Tensor) -> None:
        combined[self.received] = arrived

    def finished(self, combined: Tensor, key: DropoutKey | None) -> Tensor:
        layer, block = self.layer, self.block
        if not layer.own_width:
            return layer.finish(None, layer.from_projected(block, combined, key), None)
        own = combined[block.n_src :].reshape(block.n_dst, layer.own_width)
        return layer.finish(None, layer.join(block, combined[: block.n_src], own, key), None)

    def learn_own(self, gradient: Tensor) -> None:
        self._gradient = torch.zeros_like(self._computed)
        self._gradient[self.local_rows] = gradient.index_select(0, self.local_positions)
        self._gradient[len(self.original) :] = gradient[self.block.n_src :]

    def learn_answers(self, returned: Tensor) -> None:
        computed, gradient = self._computed, self._gradient
        del self._computed, self._gradient
        self.exchange.add(returned, self.sent_rows, gradient)
        pass_back(computed, gradient)


class PartialStep(KindStep):
    """Sums arrive: of each owner one row for a destination.

    Sums for this rank are computed, and learn, apart from those for others where nothing is computed twice then.
    """

    def __init__(self, ctx: RankContext, layer: Layer, block: BlockTensors, plan: LayerPlan) -> None:
        super().__init__(ctx, layer, block, plan)
        self.shares = partial_block(ctx, plan)
        self.of_own, self.of_others = self.shares.split(block.n_dst)

    def answers(self, rows: Rows, key: DropoutKey | None) -> Tensor:
        layer, blocks = self.layer, (self.of_own, self.of_others)
        self._apart = layer.plain_prefix and not any(layer.projects_first(block, rows) for block in blocks)
        self._computed = layer.partial(self.of_others if self._apart else self.shares, rows, key)
        found = self._computed.detach()
        return found if self._apart else found[self.block.n_dst :]

    def own(self, rows: Rows, key: DropoutKey | None) -> Tensor:
        if not self._apart:
            return self._computed.detach()[: self.block.n_dst].clone()
        self._own = self.layer.partial(self.of_own, rows, key)
        return self._own.detach().clone()

    def add(self, arrived: Tensor, combined: Tensor) -> None:
        counts = self.exchange.received_counts.tolist()
        for place, part in zip(self.received.split(counts), arrived.split(counts), strict=True):
            combined.index_add_(0, place, part)

    def finished(self, combined: Tensor, key: DropoutKey | None) -> Tensor:
        return self.layer.finish(*self.layer.from_partial(self.block.edges.counts, combined), None)

    def learn_own(self, gradient: Tensor) -> None:
        if self._apart:
            pass_back(self._own, gradient)
            del self._own
        else:
            self._gradient = gradient

    def learn_answers(self, returned: Tensor) -> None:
        computed = self._computed
        del self._computed
        if not self._apart:
            returned = torch.cat([self._gradient, returned])
            del self._gradient
        pass_back(computed, returned)
