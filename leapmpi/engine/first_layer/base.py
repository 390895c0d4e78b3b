"""What crosses ranks so that the first layer can be computed: one class per answer, one module each.

The input of a cell lies partly on other ranks. Raw rows can be fetched before the weights are known; what is smaller,
rows or sums already multiplied by the first layer's weights, travels within the step, and gradients travel back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from leapmpi.engine.first_layer.overlap import ComputedRows, FusedRows
from leapmpi.errors import ConfigError
from leapmpi.nn.loss import weighted_loss
from leapmpi.nn.tensors import BlockTensors, to_tensors

if TYPE_CHECKING:
    from leapmpi.engine.context import RankContext
    from leapmpi.engine.minibatch import MicroBatch, MiniBatch
    from leapmpi.plan.traffic_model import Traffic


class FirstLayerMode(ABC):
    """One way to get the first layer computed. Methods are collective unless they say otherwise."""

    overlaps = False
    """Whether a step computes while messages of its own travel."""

    def __init__(self, ctx: RankContext) -> None:
        self.ctx = ctx

    @staticmethod
    @abstractmethod
    def refusal(model: Any) -> str | None:
        """Why this mode cannot serve `model`, None if it can. Local."""

    @abstractmethod
    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Payload bytes that reach this rank for the first layer of `minibatch`, counted before any travel. Local."""

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """Add to `traffic` what this rank asks for, gets and reads, given the parts of all ranks in an iteration.

        For `leapmpi plan`, which has no other ranks; training must count the same. Local. Raises ConfigError where a
        mode does not tell.
        """
        raise ConfigError(f"{type(self).__name__} does not predict its traffic; leave it out of leapmpi plan")

    def held_bytes(self, minibatch: MiniBatch) -> int:
        """Bytes that the first layer's rows take on this rank from `ask` to the end of `minibatch`, about. Local."""
        del minibatch
        return 0

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """Bytes that the first layer takes while `micro_batch`, `alone` in its mini-batch or not, is trained. Local.

        The default is that of raw rows: a copy of the cell's rows unless it is alone, and one aggregated row or
        projected row for each.
        """
        block, layer = micro_batch.blocks[-1], self.ctx.model.layers[0]
        copies = (not alone) + (layer.dropout > 0)
        if layer.linear and not self.ctx.features.sparse:
            projected = min(block.n_dst * layer.in_dim, block.n_src * layer.projected_width)
        else:
            projected = 2 * block.n_src * layer.projected_width
        return copies * block.n_src * self.ctx.input_row_bytes + layer.bias.element_size() * projected

    @abstractmethod
    def ask(self, minibatch: MiniBatch) -> None:
        """What can be done before the weights are known."""

    @abstractmethod
    def train(self, minibatch: MiniBatch, number: int, labels: Any) -> float:
        """Forward and backward of cell `number`; adds to the gradients and returns this rank's share of the loss."""

    @abstractmethod
    def logits(self, minibatch: MiniBatch, number: int) -> Any:
        """Outputs of the roots of cell `number`, float[roots, classes]; nothing is kept for gradients."""

    def tensors(self, micro_batch: MicroBatch) -> list[BlockTensors]:
        """The blocks of `micro_batch` on the device. Local."""
        return micro_batch.tensors or [to_tensors(block, self.ctx.device) for block in micro_batch.blocks]

    def loss(self, minibatch: MiniBatch, number: int, logits: Any, labels: Any) -> Any:
        """The share of cell `number` in the batch's loss: the sum over its roots of weight x loss. Local."""
        weight = minibatch.root_weights[number]
        if isinstance(weight, np.ndarray):
            weight = torch.from_numpy(weight).to(logits.device, logits.dtype)
        return weighted_loss(logits, labels, weight)


@dataclass
class ExchangePlan:
    """One cell's exchange. The first layer is fed by a matrix of `total` rows, put together from own and asked ones.

    own_positions: where own rows are added, None for one to each row, in order; asked_positions: where the rows of
    others are, in order of their ranks; asked_counts, answer_counts: int64[ranks], rows asked of and answered to each
    rank; source: what answers and own rows are computed from, own rows first.
    """

    total: int
    own_positions: np.ndarray | None
    asked_positions: np.ndarray
    asked_counts: np.ndarray
    answer_counts: np.ndarray
    source: Any

    @property
    def own(self) -> int:
        """How many own rows there are."""
        return self.total if self.own_positions is None else len(self.own_positions)


class ExchangedMode(FirstLayerMode):
    """Base of the modes in which computed rows travel, and their gradients travel back to where they were computed."""

    overlaps = True

    @abstractmethod
    def ask_for(self, minibatch: MiniBatch, micro_batch: MicroBatch) -> ExchangePlan:
        """Tell the others what this cell needs of them, and learn what they need."""

    @abstractmethod
    def compute(self, minibatch: MiniBatch, exchange_plan: ExchangePlan) -> Any:
        """Own rows, then answers, computed from rows at home here; differentiable. Local."""

    @abstractmethod
    def first_sums(self, minibatch: MiniBatch, block: BlockTensors, rows: Any) -> Any:
        """What the first layer's `finish` wants, from the matrix of all rows. Local."""

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """Rows at home, if copied, and computed rows with their gradients, for this cell and as much for others."""
        del alone
        block, layer = micro_batch.blocks[-1], self.ctx.model.layers[0]
        copies = (not self.ctx.scatters) + (layer.dropout > 0)
        computed = 4 * layer.projected_width * layer.bias.element_size()
        return block.n_src * (copies * self.ctx.input_row_bytes + computed)

    def ask(self, minibatch: MiniBatch) -> None:
        """Exchange the ids. Collective."""
        minibatch.exchange_plans = [self.ask_for(minibatch, micro_batch) for micro_batch in minibatch.micro_batches]

    def computed(self, minibatch: MiniBatch, exchange_plan: ExchangePlan) -> ComputedRows:
        """Answers and own rows, in the order in which they are wanted. Local."""
        return FusedRows(self.compute(minibatch, exchange_plan), exchange_plan.own)

    def train(self, minibatch: MiniBatch, number: int, labels: Any) -> float:
        """Forward, exchange, forward, backward, exchange of gradients, backward. Collective.

        Own rows are computed, and learn, while those of others travel, where that takes nothing more.
        """
        ctx, exchange_plan, phases = self.ctx, minibatch.exchange_plans[number], self.ctx.phases
        with phases("compute"):
            computed = self.computed(minibatch, exchange_plan)
        rows = self._gathered(computed, exchange_plan).requires_grad_()
        with phases("compute"):
            loss = self.loss(minibatch, number, self._rest(minibatch, number, rows), labels)
            loss.backward()
            gradient = torch.zeros_like(rows) if rows.grad is None else rows.grad
            sent = gradient.index_select(0, self._index(exchange_plan.asked_positions))
            returned = torch.empty_like(computed.answers)
        with phases("exchange"):
            finish = ctx.communicator.start_exchange(
                sent, exchange_plan.asked_counts, returned, exchange_plan.answer_counts, "activations"
            )
        with phases("compute"):
            own = exchange_plan.own_positions
            computed.learn_own(gradient if own is None else gradient.index_select(0, self._index(own)))
        with phases("exchange"):
            finish()
        with phases("compute"):
            computed.learn_answers(returned)
        return float(loss.detach())

    @torch.no_grad()
    def logits(self, minibatch: MiniBatch, number: int) -> Any:
        """Forward, exchange, forward. Collective."""
        exchange_plan = minibatch.exchange_plans[number]
        with self.ctx.phases("compute"):
            computed = self.computed(minibatch, exchange_plan)
        rows = self._gathered(computed, exchange_plan)
        with self.ctx.phases("compute"):
            return self._rest(minibatch, number, rows)

    def _gathered(self, computed: ComputedRows, exchange_plan: ExchangePlan) -> Any:
        """The matrix that feeds the first layer, from own rows and those of others; without gradient. Collective."""
        answers, phases = computed.answers.detach(), self.ctx.phases
        arrived = answers.new_empty((len(exchange_plan.asked_positions), answers.shape[1]))
        with phases("exchange"):
            finish = self.ctx.communicator.start_exchange(
                answers, exchange_plan.answer_counts, arrived, exchange_plan.asked_counts, "activations"
            )
        with phases("compute"):
            own = computed.own().detach()
            if exchange_plan.own_positions is None:
                rows = own.clone()
            else:
                rows = own.new_zeros((exchange_plan.total, own.shape[1]))
                rows.index_add_(0, self._index(exchange_plan.own_positions), own)
        with phases("exchange"):
            finish()
        with phases("compute"):
            return rows.index_add_(0, self._index(exchange_plan.asked_positions), arrived)

    def _rest(self, minibatch: MiniBatch, number: int, rows: Any) -> Any:
        """The model's outputs from the matrix that feeds its first layer. Local."""
        blocks, model = self.tensors(minibatch.micro_batches[number]), self.ctx.model
        first = model.layers[0].finish(None, self.first_sums(minibatch, blocks[-1], rows), None)
        return model.after_first(blocks, first, minibatch.dropout)

    def _index(self, positions: np.ndarray) -> Any:
        return torch.from_numpy(positions).to(self.ctx.device)


def share_among_models(micro_batch: MicroBatch, device: torch.device) -> None:
    """Share the blocks of `micro_batch`, and sums of its features, among models that read the same rows. Local."""
    *upper, first = (to_tensors(block, device) for block in micro_batch.blocks)
    micro_batch.tensors = [*upper, replace(first, sums={})]


def no_residual(model: Any) -> str | None:
    """The refusal of a model whose first layer adds its raw input to its output."""
    if model.layers[0].residual is not None:
        return "a residual first layer needs the raw rows of its destinations"
    return None
