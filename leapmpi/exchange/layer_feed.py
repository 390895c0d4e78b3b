"""One layer on one rank, forward and backward: its inputs, its work for other ranks, and its output.

A feed takes the output of the layer below on this rank (for the first layer: feature rows) and computes the layer's
output. Later it takes the gradient of its output, adds to the gradients of the weights, and returns the gradient of
the output below. Feeds of full batches are kept; those of mini-batches serve one micro-batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.read_columns import EVERY, Kept, ReadColumns, drops_alone, has_zeros, hides_gradients
from leapmpi.exchange.stage import Combine, ComputedRows, PickedRows, Route, RowRoutes, Stage, Transfer
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.gradient import pass_back
from leapmpi.nn.layer import Layer
from leapmpi.nn.rows import Rows
from leapmpi.nn.tensors import BlockTensors


class ForwardFeed(ABC):
    """Base of all feeds: the half that inference needs."""

    def __init__(self, ctx: RankContext, layer: Layer) -> None:
        self.ctx, self.layer = ctx, layer

    @abstractmethod
    def forward(self, below: Rows | None, key: DropoutKey | None) -> Tensor:
        """Compute the layer's output, float[n_dst, out]. Collective.

        `below` are the rows of the layer below on this rank; None where the feed reads its rows itself. `key` is that
        of dropout masks.
        """


class LayerFeed(ForwardFeed):
    """Base of feeds in training. Call `forward`, then `backward`. Both are collective."""

    upper_blocks: list[BlockTensors] | None = None
    """The blocks of the layers above, where they are not this rank's own."""

    @abstractmethod
    def backward(self, gradient: Tensor) -> Tensor | None:
        """Backpropagate the output's `gradient`; return that of the output below, None for the first layer.

        Collective.
        """

    def count(self) -> None:
        """Count the bytes that a forward and a backward pass send, by default none. Local: nothing is computed."""
        return

    def returned(self, outputs: Tensor, roots: int) -> Tensor:
        """Bring the model's `outputs` to the rank that evaluates them, which has `roots` of them. Collective."""
        return outputs


class LocalFeed(LayerFeed):
    """A layer whose rows stay on their ranks within the step: `compute` gives its output from the rows below."""

    def __init__(self, ctx: RankContext, layer: Layer, compute: Callable[[Rows | None], Tensor]) -> None:
        super().__init__(ctx, layer)
        self.compute = compute

    def forward(self, below: Rows | None, key: DropoutKey | None) -> Tensor:
        with self.ctx.phases("compute"):
            self._output = self.compute(below)
        return self._output

    def backward(self, gradient: Tensor) -> Tensor | None:
        output = self._output
        del self._output
        with self.ctx.phases("compute"):
            pass_back(output, gradient)
        return None


class SizesFeed(LayerFeed):
    """A feed in a forecast, which knows the sizes of its exchange and computes nothing."""

    def __init__(self, ctx: RankContext, layer: Layer, transfer: Transfer) -> None:
        super().__init__(ctx, layer)
        self.transfer = transfer

    def forward(self, below: Rows | None, key: DropoutKey | None) -> Tensor:
        raise AssertionError("forecasts compute nothing")

    def backward(self, gradient: Tensor) -> Tensor | None:
        raise AssertionError("forecasts compute nothing")

    def count(self) -> None:
        self.transfer.count()


class HiddenInput:
    """The input matrix of a layer above the first: own rows of the layer below and rows that others send."""

    def __init__(self, ctx: RankContext, layer: Layer, routes: RowRoutes) -> None:
        self.ctx, self.routes = ctx, routes
        # Rows were outputs of the layer below; gradients passed a product with the weights.
        below = ctx.model.layers[layer.number - 2]
        self.stage = Stage(ctx, routes, layer.in_dim, zeros=(has_zeros(below), False), hides=hides_gradients(below))
        self.read_columns = ReadColumns(ctx, layer if drops_alone(layer) else None, self._names)
        self.local_rows = torch.from_numpy(routes.local_rows).to(ctx.device)
        self.sent_rows = torch.from_numpy(routes.sent_rows).to(ctx.device)

    @property
    def local_positions(self) -> Tensor:
        """int64[k]: positions of own rows in the matrix."""
        assert self.stage.local_positions is not None, "some rows may be remote"
        return self.stage.local_positions

    @property
    def received_positions(self) -> Tensor:
        """int64[m]: positions of received rows in the matrix."""
        return self.stage.received_positions

    def _names(self) -> tuple[np.ndarray, np.ndarray]:
        original = self.ctx.sampler.original_ids
        return original(self.routes.sent_vertices), original(self.routes.received_vertices)

    def matrix(self, below: Tensor, key: DropoutKey | None) -> Tensor:
        """Exchange rows of `below`; return float[rows, width], a leaf. Collective."""
        with self.ctx.phases("compute"):
            picked = PickedRows(below, self.local_rows, self.sent_rows, self.routes.sent_counts, self._take)
        return self.stage.forward(picked, self.read_columns.kept(key, below.shape[1]))

    def back(self) -> Tensor:
        """Return the gradient of the output below on this rank, once the matrix has its own. Collective."""
        self.stage.backward()
        gradient = self._gradient
        del self._gradient
        return gradient

    def _take(self, gradient: Tensor) -> None:
        self._gradient = gradient


class BlockFeed(LayerFeed):
    """A layer fed by rows of the layer below, on its own block: float[n_src, in] of own and of received rows.

    With `hidden`, rows of the layer below are exchanged first; without, `below` holds the features of all sources.
    """

    def __init__(self, ctx: RankContext, layer: Layer, block: BlockTensors | None, routes: RowRoutes | None) -> None:
        super().__init__(ctx, layer)
        self._block = block
        self.hidden = None if routes is None else HiddenInput(ctx, layer, routes)

    @property
    def block(self) -> BlockTensors:
        """The block of the layer, set late where features of edges arrive late. Feeds of shares have none."""
        assert self._block is not None, "feeds that read a block are given one"
        return self._block

    @block.setter
    def block(self, block: BlockTensors) -> None:
        self._block = block

    def drop_block(self) -> None:
        """Forget the block."""
        self._block = None

    def forward(self, below: Rows | None, key: DropoutKey | None) -> Tensor:
        self._output = self.output(self._input(below, key), key)
        return self._output

    def _input(self, below: Rows | None, key: DropoutKey | None) -> Rows | None:
        if self.hidden is not None:
            assert isinstance(below, Tensor), "hidden rows are dense"
            return self.hidden.matrix(below.detach(), key)
        return None if below is None else below.to(self.layer.dtype)

    def backward(self, gradient: Tensor) -> Tensor | None:
        # Freed before gradients travel: of a full batch, an output and its graph are large.
        output = self._output
        with self.ctx.phases("compute"):
            self.backward_output(output, gradient)
        del output, gradient, self._output
        self.backward_stages()
        return None if self.hidden is None else self.hidden.back()

    def output(self, rows: Rows | None, key: DropoutKey | None) -> Tensor:
        """Compute the layer's output from `rows`, by default from those of all sources. Collective."""
        assert rows is not None, "the layer is fed by rows"
        with self.ctx.phases("compute"):
            return self.layer(self.block, rows, key)

    def backward_output(self, output: Tensor, gradient: Tensor) -> None:
        """Backpropagate from the layer's `output` to what `output` was computed from, given its `gradient`. Local."""
        pass_back(output, gradient)

    def backward_stages(self) -> None:
        """Backpropagate through what other ranks computed, once gradients have reached it. Collective."""


class ExchangedFeed(BlockFeed):
    """Base of feeds for which ranks compute rows for each other: projected rows, or shares of destinations.

    They read features of this rank's vertices (`features`, a function that gathers them) or, without it, the matrix of
    the layer below.
    """

    def __init__(
        self,
        ctx: RankContext,
        layer: Layer,
        block: BlockTensors | None,
        routes: RowRoutes | None,
        route: Route,
        width: int,
        combination: Combine,
        features: Callable[[], Rows] | None = None,
        dense: bool = False,
    ) -> None:
        super().__init__(ctx, layer, block, routes)
        # Rows are products with the weights; their gradients have passed the activation.
        self.stage = Stage(ctx, route, width, combination, (False, has_zeros(layer) and not dense))
        self._features = features

    def on_device(self, numbers: np.ndarray) -> Tensor:
        """Copy `numbers` to the device of this rank; a view where that is the host."""
        return torch.from_numpy(numbers).to(self.ctx.device)

    @abstractmethod
    def computed(self, rows: Rows, key: DropoutKey | None) -> ComputedRows:
        """Compute, from `rows`, the rows that other ranks need and those of this rank. Local."""

    @abstractmethod
    def finished(self, combined: Tensor, key: DropoutKey | None) -> Tensor:
        """Compute the layer's output from the `combined` matrix; differentiable. Local."""

    def kept(self, key: DropoutKey | None) -> Kept:
        """Return which of the exchanged numbers are read. Local."""
        return EVERY

    def output(self, rows: Rows | None, key: DropoutKey | None) -> Tensor:
        with self.ctx.phases("compute"):
            if self._features is not None:
                rows = self._features()
            assert rows is not None, "features are read here, or rows of the layer below are given"
            computed, kept = self.computed(rows, key), self.kept(key)
        combined = self.stage.forward(computed, kept)
        with self.ctx.phases("compute"):
            return self.finished(combined, key)

    def backward_stages(self) -> None:
        self.stage.backward()

    def count(self) -> None:
        self.stage.transfer.count()
