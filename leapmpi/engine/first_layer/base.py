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

from leapmpi.engine.first_layer.overlap import Computed, Together
from leapmpi.errors import ConfigError
from leapmpi.nn.loss import weighted_loss
from leapmpi.nn.tensors import BlockTensors, to_tensors

if TYPE_CHECKING:
    from leapmpi.engine.context import Surroundings
    from leapmpi.engine.minibatch import Cell, Iteration
    from leapmpi.plan.traffic_model import Traffic


class RemoteMode(ABC):
    """One way to get the first layer computed. Methods are collective unless they say otherwise."""

    overlaps = False
    """Whether a step computes while messages of its own travel."""

    def __init__(self, at: Surroundings) -> None:
        self.at = at

    @staticmethod
    @abstractmethod
    def refusal(model: Any) -> str | None:
        """Why this mode cannot serve `model`, None if it can. Local."""

    @abstractmethod
    def predicted_bytes(self, work: Iteration) -> int:
        """Payload bytes that reach this rank for the first layer of `work`, counted before anything moves. Local."""

    def predict(self, works: Sequence[Iteration], traffic: Traffic) -> None:
        """Add to `traffic` what this rank asks for, gets and reads, given the parts of all ranks in an iteration.

        For `leapmpi plan`, which has no other ranks; training must count the same. Local. Raises ConfigError where a
        mode does not tell.
        """
        raise ConfigError(f"{type(self).__name__} does not predict its traffic; leave it out of leapmpi plan")

    def held_bytes(self, work: Iteration) -> int:
        """Bytes that the rows of the first layer take on this rank from `ask` to the end of `work`, about. Local."""
        del work
        return 0

    def step_bytes(self, cell: Cell, alone: bool) -> int:
        """Bytes that the first layer takes while `cell`, `alone` in its iteration or not, is trained, about. Local.

        The default is that of raw rows: a copy of the cell's rows unless it is alone, and one aggregated row or
        projected row for each.
        """
        block, layer = cell.blocks[-1], self.at.model.layers[0]
        copies = (not alone) + (layer.dropout > 0)
        if layer.linear and not self.at.features.sparse:
            projected = min(block.n_dst * layer.in_dim, block.n_src * layer.projected_width)
        else:
            projected = 2 * block.n_src * layer.projected_width
        return copies * block.n_src * self.at.input_row_bytes + layer.bias.element_size() * projected

    @abstractmethod
    def ask(self, work: Iteration) -> None:
        """What can be done before the weights are known."""

    @abstractmethod
    def train(self, work: Iteration, number: int, labels: Any) -> float:
        """Forward and backward of cell `number`; adds to the gradients and returns this rank's share of the loss."""

    @abstractmethod
    def logits(self, work: Iteration, number: int) -> Any:
        """Outputs of the roots of cell `number`, float[roots, classes]; nothing is kept for gradients."""

    def tensors(self, cell: Cell) -> list[BlockTensors]:
        """The blocks of `cell` on the device. Local."""
        return cell.tensors or [to_tensors(block, self.at.device) for block in cell.blocks]

    def loss(self, work: Iteration, number: int, logits: Any, labels: Any) -> Any:
        """The share of cell `number` in the batch's loss: the sum over its roots of weight x loss. Local."""
        weight = work.root_weights[number]
        if isinstance(weight, np.ndarray):
            weight = torch.from_numpy(weight).to(logits.device, logits.dtype)
        return weighted_loss(logits, labels, weight)


@dataclass
class Asked:
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


class ExchangedMode(RemoteMode):
    """Base of the modes in which computed rows travel, and their gradients travel back to where they were computed."""

    overlaps = True

    @abstractmethod
    def ask_for(self, work: Iteration, cell: Cell) -> Asked:
        """Tell the others what this cell needs of them, and learn what they need."""

    @abstractmethod
    def compute(self, work: Iteration, asked: Asked) -> Any:
        """Own rows, then answers, computed from rows at home here; differentiable. Local."""

    @abstractmethod
    def first_sums(self, work: Iteration, block: BlockTensors, rows: Any) -> Any:
        """What the first layer's `finish` wants, from the matrix of all rows. Local."""

    def step_bytes(self, cell: Cell, alone: bool) -> int:
        """Rows at home, if copied, and computed rows with their gradients, for this cell and as much for others."""
        del alone
        block, layer = cell.blocks[-1], self.at.model.layers[0]
        copies = (not self.at.scatters) + (layer.dropout > 0)
        computed = 4 * layer.projected_width * layer.bias.element_size()
        return block.n_src * (copies * self.at.input_row_bytes + computed)

    def ask(self, work: Iteration) -> None:
        """Exchange the ids. Collective."""
        work.asked = [self.ask_for(work, cell) for cell in work.cells]

    def computed(self, work: Iteration, asked: Asked) -> Computed:
        """Answers and own rows, in the order in which they are wanted. Local."""
        return Together(self.compute(work, asked), asked.own)

    def train(self, work: Iteration, number: int, labels: Any) -> float:
        """Forward, exchange, forward, backward, exchange of gradients, backward. Collective.

        Own rows are computed, and learn, while those of others travel, where that takes nothing more.
        """
        at, asked, phases = self.at, work.asked[number], self.at.phases
        with phases("compute"):
            computed = self.computed(work, asked)
        rows = self._gathered(computed, asked).requires_grad_()
        with phases("compute"):
            loss = self.loss(work, number, self._rest(work, number, rows), labels)
            loss.backward()
            gradient = torch.zeros_like(rows) if rows.grad is None else rows.grad
            sent = gradient.index_select(0, self._index(asked.asked_positions))
            returned = torch.empty_like(computed.answers)
        with phases("exchange"):
            finish = at.wire.start_exchange(sent, asked.asked_counts, returned, asked.answer_counts, "activations")
        with phases("compute"):
            own = asked.own_positions
            computed.learn_own(gradient if own is None else gradient.index_select(0, self._index(own)))
        with phases("exchange"):
            finish()
        with phases("compute"):
            computed.learn_answers(returned)
        return float(loss.detach())

    @torch.no_grad()
    def logits(self, work: Iteration, number: int) -> Any:
        """Forward, exchange, forward. Collective."""
        asked = work.asked[number]
        with self.at.phases("compute"):
            computed = self.computed(work, asked)
        rows = self._gathered(computed, asked)
        with self.at.phases("compute"):
            return self._rest(work, number, rows)

    def _gathered(self, computed: Computed, asked: Asked) -> Any:
        """The matrix that feeds the first layer, from own rows and those of others; without gradient. Collective."""
        answers, phases = computed.answers.detach(), self.at.phases
        arrived = answers.new_empty((len(asked.asked_positions), answers.shape[1]))
        with phases("exchange"):
            finish = self.at.wire.start_exchange(
                answers, asked.answer_counts, arrived, asked.asked_counts, "activations"
            )
        with phases("compute"):
            own = computed.own().detach()
            if asked.own_positions is None:
                rows = own.clone()
            else:
                rows = own.new_zeros((asked.total, own.shape[1]))
                rows.index_add_(0, self._index(asked.own_positions), own)
        with phases("exchange"):
            finish()
        with phases("compute"):
            return rows.index_add_(0, self._index(asked.asked_positions), arrived)

    def _rest(self, work: Iteration, number: int, rows: Any) -> Any:
        """The model's outputs from the matrix that feeds its first layer. Local."""
        blocks, model = self.tensors(work.cells[number]), self.at.model
        first = model.layers[0].finish(None, self.first_sums(work, blocks[-1], rows), None)
        return model.after_first(blocks, first, work.dropout)

    def _index(self, positions: np.ndarray) -> Any:
        return torch.from_numpy(positions).to(self.at.device)


def share_among_models(cell: Cell, device: torch.device) -> None:
    """Have models that are about to read the same features share the blocks of `cell`, and what they sum up. Local."""
    *upper, first = (to_tensors(block, device) for block in cell.blocks)
    cell.tensors = [*upper, replace(first, sums={})]


def no_residual(model: Any) -> str | None:
    """The refusal of a model whose first layer adds its raw input to its output."""
    if model.layers[0].residual is not None:
        return "a residual first layer needs the raw rows of its destinations"
    return None
