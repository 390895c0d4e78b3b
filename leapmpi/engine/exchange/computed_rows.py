"""Modes in which computed rows travel, and their gradients travel back to where they were computed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leapmpi.engine.exchange.base import ExchangeMode
from leapmpi.engine.minibatch import MicroBatch, MiniBatch
from leapmpi.nn.gradient import pass_back
from leapmpi.nn.partial_form import Combination, SumCombination
from leapmpi.nn.tensors import BlockTensors


@dataclass
class ExchangePlan:
    """The exchange of one micro-batch. The layer reads a matrix of `total` rows, combined of local and remote ones.

    local_positions: int64, the matrix row of each local row; None for one each, in order.
    remote_positions: int64, the matrix row of each requested row, in order of the ranks that compute them.
    remote_counts, answer_counts: int64[ranks], rows requested of each rank, and rows computed for each rank.
    source: what local rows and answers are computed from.
    """

    total: int
    local_positions: np.ndarray | None
    remote_positions: np.ndarray
    remote_counts: np.ndarray
    answer_counts: np.ndarray
    source: Any

    @property
    def local_count(self) -> int:
        """The number of local rows."""
        return self.total if self.local_positions is None else len(self.local_positions)


class ComputedRows:
    """Rows that this rank computes for a layer: `rows` holds `local` local ones, then the answers to other ranks.

    Or the answers alone, with a function that computes the local rows while the answers travel. Local rows are asked
    for once, after the answers; they learn first, while the gradients of the answers travel. Local.
    """

    def __init__(self, rows: Tensor, local: int | Callable[[], Tensor]) -> None:
        self._rows, self._local = rows, local
        self.answers = rows[local:] if isinstance(local, int) else rows

    def local(self) -> Tensor:
        """float[local rows, width]."""
        self._computed = self._rows[: self._local] if isinstance(self._local, int) else self._local()
        return self._computed

    def learn_local(self, gradient: Tensor) -> None:
        """Pass the gradient of local rows on to the weights; of one computation the backward pass runs once."""
        if isinstance(self._local, int):
            self._gradient = gradient
        else:
            pass_back(self._computed, gradient)

    def learn_answers(self, gradient: Tensor) -> None:
        """Pass the gradient of the answers on to the weights."""
        pass_back(self._rows, torch.cat([self._gradient, gradient]) if isinstance(self._local, int) else gradient)


class ComputedRowsMode(ExchangeMode):
    """Base of modes whose rows depend on the layer's weights."""

    needs_weights = True
    overlaps = True

    @abstractmethod
    def plan_exchange(self, minibatch: MiniBatch, micro_batch: MicroBatch) -> ExchangePlan:
        """Request what `micro_batch` needs of other ranks, and learn what they need. Collective."""

    @abstractmethod
    def computed(self, minibatch: MiniBatch, plan: ExchangePlan) -> ComputedRows:
        """Answers and local rows, computed from local rows; differentiable. Local."""

    @abstractmethod
    def first_output(self, minibatch: MiniBatch, block: BlockTensors, rows: Tensor) -> Tensor:
        """The layer's output float[n_dst, out], from the combined matrix. Local."""

    @property
    def combination(self) -> type[Combination]:
        """How local and remote rows are combined."""
        return SumCombination

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """Local rows, if copied, and computed rows with their gradients, for this rank and as much for others."""
        block, layer = micro_batch.block(self.number), self.layer
        copies = (not self.ctx.scatters) + (layer.dropout > 0)
        computed = 4 * layer.projected_width * layer.bias.element_size()
        return block.n_src * (copies * self.ctx.input_row_bytes + computed)

    def request(self, minibatch: MiniBatch) -> None:
        minibatch.exchange_plans = [self.plan_exchange(minibatch, each) for each in minibatch.micro_batches]

    def train(self, minibatch: MiniBatch, number: int, labels: Tensor) -> float:
        """Forward, exchange, forward, backward, exchange of gradients, backward. Collective.

        Local rows are computed, and learn, while those of others travel, where that costs nothing more.
        """
        ctx, plan = self.ctx, minibatch.exchange_plans[number]

        # Compute the rows that others need, exchange, and combine them with the local ones.
        with ctx.phases("compute"):
            computed = self.computed(minibatch, plan)
        combined = self._exchanged(computed, plan)
        rows = combined.rows.requires_grad_()

        # Finish the forward pass, and run the backward pass down to the combined matrix.
        with ctx.phases("compute"):
            loss = self.loss(minibatch, number, self._outputs(minibatch, number, rows), labels)
            loss.backward()
            gradient = torch.zeros_like(rows) if rows.grad is None else rows.grad
            sent = combined.arrived_gradient(gradient)
            returned = torch.empty_like(computed.answers)

        # Gradients go back to where rows were computed; local rows learn meanwhile.
        with ctx.phases("exchange"):
            finish = ctx.communicator.start_exchange(
                sent, plan.remote_counts, returned, plan.answer_counts, "activations"
            )
        with ctx.phases("compute"):
            computed.learn_local(combined.local_gradient(gradient))
        with ctx.phases("exchange"):
            finish()
        with ctx.phases("compute"):
            computed.learn_answers(returned)
        return float(loss.detach())

    @torch.no_grad()
    def logits(self, minibatch: MiniBatch, number: int) -> Tensor:
        plan = minibatch.exchange_plans[number]
        with self.ctx.phases("compute"):
            computed = self.computed(minibatch, plan)
        combined = self._exchanged(computed, plan)
        with self.ctx.phases("compute"):
            return self._outputs(minibatch, number, combined.rows)

    def _exchanged(self, computed: ComputedRows, plan: ExchangePlan) -> Combination:
        """The matrix that feeds the layer, from local rows and those of other ranks; without gradient. Collective."""
        ctx, answers = self.ctx, computed.answers.detach()
        arrived = answers.new_empty((len(plan.remote_positions), answers.shape[1]))
        with ctx.phases("exchange"):
            finish = ctx.communicator.start_exchange(
                answers, plan.answer_counts, arrived, plan.remote_counts, "activations"
            )
        # Local rows are computed while the answers travel.
        with ctx.phases("compute"):
            local = computed.local().detach()
            positions = None if plan.local_positions is None else self._on_device(plan.local_positions)
            combined = self.combination(local, positions, plan.total)
        with ctx.phases("exchange"):
            finish()
        with ctx.phases("compute"):
            combined.add(arrived, self._on_device(plan.remote_positions))
        return combined

    def _outputs(self, minibatch: MiniBatch, number: int, rows: Tensor) -> Tensor:
        """The model's outputs from the matrix that feeds its layer. Local."""
        blocks = self.tensors(minibatch.micro_batches[number])
        first = self.first_output(minibatch, blocks[-1 - self.number], rows)
        return self.ctx.model.after(self.number, blocks, first, minibatch.dropout)

    def _on_device(self, positions: np.ndarray) -> Tensor:
        return torch.from_numpy(positions).to(self.ctx.device)
