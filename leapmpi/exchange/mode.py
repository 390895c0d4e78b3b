"""The base of exchange modes: ways in which the inputs of the first layer reach the rank that computes it.

Part of the input of a micro-batch is remote. Raw rows and sums of them can be fetched before the weights are known.
Rows or shares multiplied by the layer's weights are smaller; they travel within the step, and gradients return. A mode
requests the inputs of a mini-batch, and offers the feeds (layer_feed.py) that compute with them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.layer_feed import LayerFeed
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.nn.layer import Layer
from leapmpi.nn.rows import Rows
from leapmpi.nn.tensors import BlockTensors
from leapmpi.plan.traffic_model import Traffic
from leapmpi.registry import Member
from leapmpi.sampling.block import Block
from leapmpi.system.counter_rng import DrawKey


class ExchangeMode(ABC):
    """One way to feed the first layer of the context's model. Collective unless said otherwise."""

    needs_weights = False
    """Whether what travels depends on the layer's weights, so that it cannot be fetched ahead of the step."""

    overlaps = False
    """Whether a step computes while its own messages travel."""

    moves_raw_rows = False
    """Whether only raw rows cross ranks, so that a cache or narrower rows save bytes."""

    reads_numbers = True
    """Whether the layer reads sources of its block by number; else their ids suffice."""

    serves_bounds = True
    """Whether a vertex may be a destination for several bounds of roots."""

    surcharge = 1.0
    """Factor on its bytes where modes are compared by bytes: one that takes more work must save more of them."""

    order = 100
    """Rank among modes that move equally many bytes: the lowest order wins."""

    description = "rows of remote vertices"
    """Description, for users, of the data that move between ranks."""

    def __init__(self, ctx: RankContext) -> None:
        self.ctx = ctx

    @property
    def layer(self) -> Layer:
        """The first layer."""
        return self.ctx.model.layers[0]

    @classmethod
    def refusal(cls, layer: Layer) -> str | None:
        """Return why this mode cannot feed `layer`, None if it can. Local.

        By default, a mode whose rows depend on weights cannot feed a user's own module. Nor can it feed a layer that
        adds its raw input to its output, or makes messages of it.
        """
        # Owners would have to compute a part of the layer, which these layers do not offer.
        if cls.needs_weights and not layer.splits:
            return "a module of your own is run as a whole, on raw rows"
        if cls.needs_weights and not layer.projects:
            return "its messages are made of raw rows and features of edges"
        if cls.needs_weights and layer.residual is not None:
            return "a residual first layer needs the raw rows of its destinations"
        return None

    @classmethod
    def serves_all(cls, layers: Sequence[Layer]) -> bool:
        """Return whether one fetch feeds the models of all `layers`, if the mode serves each alone. Local."""
        return False

    @classmethod
    def refusal_of_rows(cls, features: FeatureFetcher) -> str | None:
        """Return why this mode cannot feed a first layer that reads `features`, None if it can. Local."""
        return None

    @classmethod
    def offered_to_auto(cls, layer: Layer) -> bool:
        """Return whether auto may take the mode for `layer`: fewer bytes may cost more work than they save. Local."""
        return True

    def collectives(self, time_steps: int) -> int:
        """Count the exchanges of an iteration that bring its inputs, and return gradients. Local."""
        return 2 * time_steps if self.needs_weights else 1

    @classmethod
    def order_for(cls, layer: Layer) -> int:
        """Return the mode's `order` where it feeds `layer`. Local."""
        return cls.order

    @abstractmethod
    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Count the payload bytes of the layer's inputs that will reach this rank, before any travel. Local."""

    def held_bytes(self, minibatch: MiniBatch) -> int:
        """Estimate the bytes of the layer's input rows on this rank, from `request` to the end of the step. Local."""
        return 0

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """Estimate the bytes of the layer while `micro_batch` is trained, `alone` in its mini-batch or not. Local.

        The default is that of raw rows: a copy of the micro-batch's rows unless it is alone, and one aggregated or
        projected row for each.
        """
        block, layer = micro_batch.first_block, self.layer
        copies = (not alone) + (layer.dropout > 0)
        if layer.linear and not self.ctx.features.sparse:
            projected = min(block.n_dst * layer.in_dim, block.n_src * layer.rows.width)
        else:
            projected = 2 * block.n_src * layer.rows.width
        if "edge_features" in layer.edge_data:
            # Messages that read features of edges are rows of edges.
            projected += 2 * block.edges * layer.rows.source_width
        return copies * block.n_src * self.ctx.input_row_bytes + layer.dtype.itemsize * projected

    def work(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> tuple[int, int, int]:
        """Count the sources, destinations and edges of the layer that this rank computes in an iteration. Local.

        `minibatches` are those of all ranks, `traffic` is what they read and send. By default its own blocks count.
        """
        blocks = [each.first_block for each in minibatches[self.ctx.rank].micro_batches]
        return sum(b.n_src for b in blocks), sum(b.n_dst for b in blocks), sum(b.edges for b in blocks)

    @abstractmethod
    def request(self, minibatch: MiniBatch) -> None:
        """Do all work that needs no weights: request rows, exchange ids, draw for other ranks."""

    def count(self, minibatch: MiniBatch, number: int) -> None:
        """Count the bytes that training micro-batch `number` sends, once requested. Local: nothing is computed."""
        if number < len(minibatch.feeds):
            for feed in minibatch.feeds[number]:
                feed.count()

    def feeds(self, minibatch: MiniBatch, number: int) -> tuple[Sequence[LayerFeed], Rows | None]:
        """Return the feeds of micro-batch `number`, by layer from the first on, and the rows that the first one reads.

        This rank computes all layers above them; without feeds, the whole model. By default they are the feeds made by
        `request`. Local.
        """
        return minibatch.feeds[number], minibatch.features

    def train(self, minibatch: MiniBatch, number: int, labels: Tensor) -> float:
        """Add the gradients of micro-batch `number` to the parameters'; return this rank's share of the loss."""
        feeds, rows = self.feeds(minibatch, number)
        outputs = _forward(feeds, rows, minibatch.dropout)

        # Detached tops end this backward pass at the feeds, whose own passes are collective and follow in one order.
        with self.ctx.phases("compute"):
            blocks = self._blocks_above(feeds, minibatch, number)
            tops = [output.detach().requires_grad_() for output in self._read_above(outputs, blocks)]
            loss = self.loss(minibatch, number, self._outputs(tops, rows, blocks, minibatch), labels)
            self.ctx.model.backward(loss)
        outputs.clear()

        # From the last feed down: each returns the gradient of the rows below it.
        gradient: Tensor | None = None
        for feed, top in zip(reversed(feeds), reversed(tops), strict=True):
            with self.ctx.phases("compute"):
                of_top = torch.zeros_like(top) if top.grad is None else top.grad
                if gradient is None:
                    gradient = of_top
                else:
                    gradient[: len(of_top)] += of_top
            gradient = feed.backward(gradient)
        return float(loss.detach())

    @torch.no_grad()
    def logits(self, minibatch: MiniBatch, number: int) -> Tensor:
        """Compute the outputs of the roots of micro-batch `number`, float[roots, classes], without gradients."""
        feeds, rows = self.feeds(minibatch, number)
        outputs = _forward(feeds, rows, minibatch.dropout)
        with self.ctx.phases("compute"):
            blocks = self._blocks_above(feeds, minibatch, number)
            found = self._outputs(self._read_above(outputs, blocks), rows, blocks, minibatch)
        return feeds[-1].returned(found, len(minibatch.micro_batches[number].roots)) if feeds else found

    def _blocks_above(self, feeds: Sequence[LayerFeed], minibatch: MiniBatch, number: int) -> Sequence[BlockTensors]:
        """Return the blocks that the layers above `feeds` and the head read. Local."""
        elsewhere = feeds[-1].upper_blocks if feeds else None
        return elsewhere or self.tensors(minibatch.micro_batches[number])

    def _read_above(self, outputs: Sequence[Tensor], blocks: Sequence[BlockTensors]) -> list[Tensor]:
        """Return the rows of `outputs` that are read above: all that feed a layer, else those of the roots. Local."""
        read = [output[: blocks[0].n_dst] for output in outputs]
        if outputs and len(outputs) < len(self.ctx.model.layers):
            read[-1] = outputs[-1]
        return read

    def _outputs(
        self, tops: Sequence[Tensor], rows: Rows | None, blocks: Sequence[BlockTensors], minibatch: MiniBatch
    ) -> Tensor:
        """Return the model's outputs from what is read of the feeds' outputs, or from `rows`. Local."""
        if tops:
            return self.ctx.model.after(len(tops) - 1, blocks, tops[-1], minibatch.dropout, tops[:-1])
        assert rows is not None, "`request` has requested them, and the mini-batch is complete"
        return self.ctx.model(blocks, rows, minibatch.dropout)

    @property
    def blocks_read(self) -> int:
        """Number of blocks of a micro-batch that are read, from the roots outward; ids of the others suffice. Local."""
        layers = len(self.ctx.model.layers)
        # A model of one layer may have a head, which reads the block.
        return layers if self.reads_numbers else max(1, layers - 1)

    def sample(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """Sample the blocks of `roots` as `Sampler.sample` does; at least those that are read number their sources."""
        ctx = self.ctx
        numbered = ctx.counts_sources or self.blocks_read == len(ctx.model.layers)
        return ctx.sampler.sample(key, roots, batch) if numbered else ctx.sampler.sample_unnumbered(key, roots, batch)

    def tensors(self, micro_batch: MicroBatch) -> list[BlockTensors]:
        """Return the blocks of `micro_batch` that are read, on the device. Local."""
        return micro_batch.tensors or micro_batch.on_device(self.ctx.device, self.blocks_read)

    def share_among_models(self, micro_batch: MicroBatch) -> None:
        """Share the blocks of `micro_batch`, and sums of its features, among models that read the same rows. Local."""
        tensors = micro_batch.on_device(self.ctx.device, self.blocks_read)
        # Where the first layer's block is not read, each model has rows of its own in all of them.
        if self.blocks_read == len(self.ctx.model.layers):
            tensors[-1] = replace(tensors[-1], sums={})
        micro_batch.tensors = tensors

    def loss(self, minibatch: MiniBatch, number: int, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the share of micro-batch `number` in the batch's loss: the sum over its roots of weight x loss. Local.

        In a task on edges it is the sum over its edges, whose ends' embeddings cross ranks: collective.
        """
        if minibatch.edge_loss is not None:
            assert self.ctx.model.scorer is not None, "a model of a task on edges has one"
            return minibatch.edge_loss(number, logits, self.ctx.model.scorer)
        weight: float | np.ndarray | Tensor = minibatch.root_weights[number]
        if isinstance(weight, np.ndarray):
            weight = torch.from_numpy(weight).to(logits.device, logits.dtype)
        return self.ctx.task.checked(self.ctx.task.loss(logits, labels, weight))


@dataclass(frozen=True)
class ModeMember(Member):
    """An exchange mode."""

    mode: type[ExchangeMode]


def _forward(feeds: Sequence[LayerFeed], rows: Rows | None, key: DrawKey | None) -> list[Tensor]:
    """Compute the outputs of all `feeds`; the first one reads `rows`. Collective."""
    outputs: list[Tensor] = []
    for feed in feeds:
        outputs.append(feed.forward(outputs[-1] if outputs else rows, key))
    return outputs
