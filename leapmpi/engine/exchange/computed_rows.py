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
from leapmpi.features.row_exchange import RowRequest
from leapmpi.nn.gradient import pass_back
from leapmpi.nn.rows import Rows
from leapmpi.nn.shares.combination import Combination, SumCombination
from leapmpi.nn.shares.partial_form import PartialStep
from leapmpi.nn.tensors import BlockTensors
from leapmpi.sampling.block import Block

NUMBER = 8
"""Bytes of an id, a position or a count in a plan."""


@dataclass
class ExchangePlan:
    """The exchange of one micro-batch. The layer reads a matrix of `total` rows, combined of local and remote ones.

    local_positions: int64, the matrix row of each local row; None for one each, in order.
    remote_positions: int64, the matrix row of each requested row, in order of the ranks that compute them.
    remote_counts, answer_counts: int64[ranks], rows requested of each rank, and rows computed for each rank.
    source: what local rows and answers are computed from.
    first: the exchange of what these need of other ranks before they can be computed; None for nothing.
    """

    total: int
    local_positions: np.ndarray | None
    remote_positions: np.ndarray
    remote_counts: np.ndarray
    answer_counts: np.ndarray
    source: Any
    first: ExchangePlan | None = None

    @property
    def local_count(self) -> int:
        """The number of local rows."""
        return self.total if self.local_positions is None else len(self.local_positions)


class ComputedRows:
    """Rows that this rank computes for a layer: `rows` holds `local` local ones, then the answers to other ranks.

    Local rows are asked for once, after the answers; they learn first, while the gradients of the answers travel.
    """

    def __init__(self, rows: Tensor, local: int) -> None:
        self._rows, self._local = rows, local
        self.answers = rows[local:]

    def local(self) -> Tensor:
        """float[local rows, width]."""
        return self._rows[: self._local]

    def learn_local(self, gradient: Tensor) -> None:
        """Pass the gradient of local rows on to the weights; of one computation the backward pass runs once."""
        self._gradient = gradient

    def learn_answers(self, gradient: Tensor) -> None:
        """Pass the gradient of the answers on to the weights."""
        pass_back(self._rows, torch.cat([self._gradient, gradient]))


class ComputedApart(ComputedRows):
    """The same where the local rows are computed while the answers travel; each half as `Layer.partial_step` does."""

    def __init__(self, answers: PartialStep, local: Callable[[], PartialStep]) -> None:
        self.answers, self._learn_answers = answers
        self._compute = local

    def local(self) -> Tensor:
        computed, self._learn_local = self._compute()
        return computed

    def learn_local(self, gradient: Tensor) -> None:
        self._learn_local(gradient)

    def learn_answers(self, gradient: Tensor) -> None:
        self._learn_answers(gradient)


@dataclass
class Exchanged:
    """What one exchange gave: the matrix `combined` of rows `computed` here and of those that arrived."""

    plan: ExchangePlan
    computed: ComputedRows
    combined: Combination

    @property
    def gradient(self) -> Tensor:
        """float[total, width]: that of the combined matrix, once a backward pass has come down to it."""
        rows = self.combined.rows
        return torch.zeros_like(rows) if rows.grad is None else rows.grad


class ComputedRowsMode(ExchangeMode):
    """Base of modes whose rows depend on the layer's weights."""

    needs_weights = True
    overlaps = True

    @abstractmethod
    def plan_exchange(self, minibatch: MiniBatch, micro_batch: MicroBatch) -> ExchangePlan:
        """Request what `micro_batch` needs of other ranks, and learn what they need. Collective."""

    @abstractmethod
    def computed(self, minibatch: MiniBatch, plan: ExchangePlan, first: Tensor | None) -> ComputedRows:
        """Answers and local rows, from local rows and the matrix that `plan.first` gave; differentiable. Local."""

    def computed_first(self, minibatch: MiniBatch, plan: ExchangePlan) -> ComputedRows:
        """Likewise those of `plan`, an exchange that goes first. Local."""
        raise NotImplementedError(f"{type(self).__name__} exchanges nothing first")

    @abstractmethod
    def first_output(self, minibatch: MiniBatch, number: int, blocks: list[BlockTensors], rows: Tensor) -> Tensor:
        """The layer's output float[n_dst, out] for micro-batch `number`, from the combined matrix. Local.

        blocks: those that are read (`blocks_read`), on the device.
        """

    @property
    def combination(self) -> type[Combination]:
        """How local and remote rows are combined."""
        return SumCombination

    def held_bytes(self, minibatch: MiniBatch) -> int:
        """The plans: no row is there before the step."""
        return sum(self.plan_bytes(each.block(self.number)) for each in minibatch.micro_batches)

    @abstractmethod
    def plan_bytes(self, block: Block) -> int:
        """Bytes, about, of the plan for `block`, if others request here as much as this rank requests there. Local."""

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """Local rows, if copied, and computed rows with their gradients, for this rank and as much for others."""
        block, layer = micro_batch.block(self.number), self.layer
        copies = (not self.ctx.scatters) + (layer.dropout > 0)
        computed = 4 * layer.projected_width * layer.bias.element_size()
        return block.n_src * (copies * self.ctx.input_row_bytes + computed)

    def request(self, minibatch: MiniBatch) -> None:
        minibatch.exchange_plans = [self.plan_exchange(minibatch, each) for each in minibatch.micro_batches]

    def request_rows(self, ids: np.ndarray) -> ExchangePlan:
        """The exchange by which rows for distinct vertices `ids` (int64[k]) come from their homes. Collective.

        Its source is int64: the local ones of `ids`, then those that other ranks request here.
        """
        ctx = self.ctx
        request = RowRequest(ids, ctx.rank_offsets, ctx.rank)
        requested, counts = ctx.communicator.exchange_ids(
            request.remote_ids, request.remote_counts, ctx.inputs(self.number).id_codec
        )
        return ExchangePlan(
            total=len(ids),
            local_positions=request.local_positions,
            remote_positions=request.remote_positions,
            remote_counts=request.remote_counts,
            answer_counts=counts,
            source=np.concatenate((request.local_ids, requested)),
        )

    def local_rows(self, ids: np.ndarray) -> tuple[Rows, Tensor]:
        """The rows of local vertices `ids` (int64[k]) that the layer reads, and their original ids. Local."""
        ctx = self.ctx
        original = self._on_device(ctx.sampler.original_ids(ids))
        return ctx.inputs(self.number).local(ids, ctx.scatters), original

    def train(self, minibatch: MiniBatch, number: int, labels: Tensor) -> float:
        """Forward, exchange, forward, backward, exchange of gradients, backward. Collective.

        Local rows are computed, and learn, while those of others travel, where that costs nothing more.
        """
        ctx = self.ctx
        first, exchanged = self._forward(minibatch, number)
        rows = exchanged.combined.rows.requires_grad_()

        # Finish the forward pass, and run the backward pass down to the combined matrix.
        with ctx.phases("compute"):
            loss = self.loss(minibatch, number, self._outputs(minibatch, number, rows), labels)
            loss.backward()

        # Gradients go back to where rows were computed.
        self._return(exchanged)
        if first is not None:
            self._return(first)
        return float(loss.detach())

    @torch.no_grad()
    def logits(self, minibatch: MiniBatch, number: int) -> Tensor:
        _, exchanged = self._forward(minibatch, number)
        with self.ctx.phases("compute"):
            return self._outputs(minibatch, number, exchanged.combined.rows)

    def _forward(self, minibatch: MiniBatch, number: int) -> tuple[Exchanged | None, Exchanged]:
        """Compute the rows that others need, exchange, and combine them with the local ones. Collective.

        The first result is what was exchanged before.
        """
        plan, first, sent = minibatch.exchange_plans[number], None, None
        if plan.first is not None:
            with self.ctx.phases("compute"):
                computed = self.computed_first(minibatch, plan.first)
            first = self._exchanged(computed, plan.first, SumCombination)
            sent = first.combined.rows.requires_grad_(torch.is_grad_enabled())
        with self.ctx.phases("compute"):
            computed = self.computed(minibatch, plan, sent)
        return first, self._exchanged(computed, plan, self.combination)

    def _return(self, exchanged: Exchanged) -> None:
        """Gradients go back to where rows were computed; local rows learn meanwhile. Collective."""
        ctx, plan, computed, combined = self.ctx, exchanged.plan, exchanged.computed, exchanged.combined
        with ctx.phases("compute"):
            gradient = exchanged.gradient
            sent, returned = combined.arrived_gradient(gradient), torch.empty_like(computed.answers)
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

    def _exchanged(self, computed: ComputedRows, plan: ExchangePlan, combination: type[Combination]) -> Exchanged:
        """The matrix of local rows and those of other ranks, without gradient. Collective."""
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
            combined = combination(local, positions, plan.total)
        with ctx.phases("exchange"):
            finish()
        with ctx.phases("compute"):
            combined.add(arrived, self._on_device(plan.remote_positions))
        return Exchanged(plan, computed, combined)

    def _outputs(self, minibatch: MiniBatch, number: int, rows: Tensor) -> Tensor:
        """The model's outputs from the matrix that feeds its layer. Local."""
        blocks = self.tensors(minibatch.micro_batches[number])
        first = self.first_output(minibatch, number, blocks, rows)
        return self.ctx.model.after(self.number, blocks, first, minibatch.dropout)

    def _on_device(self, positions: np.ndarray) -> Tensor:
        return torch.from_numpy(positions).to(self.ctx.device)
