"""The loss of a micro-batch of edges, whose ends may be embedded on other ranks.

Embeddings of remote ends travel to the rank that scores an edge, their gradients travel back; nothing else does. Who
needs which is known to all ranks from the plan, so no ids are sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from leapmpi.comm.communicator import Communicator
from leapmpi.nn.gradient import value_with_gradient
from leapmpi.nn.scorer import Scorer, sums_by_row, take_rows
from leapmpi.plan.edge_plan import EdgeStep
from leapmpi.system.phase_timers import PhaseTimers


class EdgeLoss:
    """Weighted binary cross-entropy over this rank's `steps`; `weight` is that of every pair."""

    def __init__(
        self,
        steps: Sequence[EdgeStep],
        weight: float,
        scorer: Scorer,
        communicator: Communicator,
        phases: PhaseTimers,
    ) -> None:
        self.steps, self.weight, self.scorer = steps, weight, scorer
        self.communicator, self.phases = communicator, phases

    def __call__(self, number: int, embeddings: Tensor) -> Tensor:
        """The loss of time step `number`, a scalar; `embeddings` float[roots, D] are this rank's roots'. Collective.

        Gradients of the scorer's parameters are added at once; the scalar's backward passes on those of embeddings, the
        shares of all ranks together.
        """
        step, own, count = self.steps[number], embeddings.detach(), len(embeddings)
        device = own.device
        sent = torch.from_numpy(step.sent).to(device)

        # Embeddings of remote ends.
        arrived = own.new_empty((int(step.receive_counts.sum()), own.shape[1]))
        self._exchange(own[sent], step.send_counts, arrived, step.receive_counts)

        # Score, and go back to the embeddings.
        rows = torch.cat([own, arrived])
        with torch.enable_grad():
            rows.requires_grad_()
            ends = (torch.from_numpy(each).to(device) for each in (step.source, step.destination))
            scores = self.scorer(*(take_rows(rows, each) for each in ends))
            targets = torch.from_numpy(step.positive).to(device, scores.dtype)
            loss = self.weight * F.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
            loss.backward()
        assert rows.grad is not None, "scores depend on all rows, if by nothing"

        # Gradients go home.
        returned = own.new_empty((len(sent), own.shape[1]))
        self._exchange(rows.grad[count:].contiguous(), step.receive_counts, returned, step.send_counts)
        gradient = torch.cat([rows.grad[:count], returned])
        every = torch.cat([torch.arange(count, device=device), sent])
        return value_with_gradient(embeddings, sums_by_row(gradient, every, count), loss.detach())

    def _exchange(self, send: Tensor, send_counts, receive: Tensor, receive_counts) -> None:
        with self.phases("exchange"):
            self.communicator.exchange(send, send_counts, receive, receive_counts, "embeddings")
