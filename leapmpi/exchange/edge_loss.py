"""The loss of a micro-batch of edges, whose ends may be embedded on other ranks.

Embeddings of remote ends travel to the rank that scores an edge, their gradients travel back; nothing else does. Who
needs which is known to all ranks from the plan, so no ids are sent.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leapmpi.comm.communicator import Communicator
from leapmpi.nn.gradient import value_with_gradient
from leapmpi.nn.scorer import Scorer, sums_by_row, take_rows
from leapmpi.nn.task import EdgeTask
from leapmpi.plan.edge_plan import EdgePlan
from leapmpi.plan.traffic_model import Traffic
from leapmpi.system.phase_timers import PhaseTimers

KIND = "embeddings"
"""The kind under which their bytes are counted."""


class EdgeLoss:
    """The loss over the steps of `rank` in `plan`; `task` says how wrong a score is."""

    def __init__(
        self,
        plan: EdgePlan,
        rank: int,
        task: EdgeTask,
        communicator: Communicator,
        phases: PhaseTimers,
    ) -> None:
        self.plan, self.steps, self.weight = plan, plan.of_rank(rank), plan.pair_weight
        self.task, self.travels = task, plan.travels
        self.communicator, self.phases = communicator, phases

    def predict(self, rank: int, row_bytes: int, traffic: Traffic) -> None:
        """Add to `traffic` the embeddings, of `row_bytes`, that `rank` receives, and gradients it returns. Local."""
        for step in self.steps:
            traffic.add_exchange(rank, step.receive_counts, KIND, row_bytes)

    def held_bytes(self, number: int, row_bytes: int) -> int:
        """Bytes, about, that scoring time step `number` takes on this rank beside the rows of its roots.

        Remote rows with gradients, rows that leave and gradients that come back, both ends of pairs with gradients.
        """
        step = self.steps[number]
        return row_bytes * (2 * int(step.receive_counts.sum()) + 2 * len(step.sent) + 4 * len(step.source))

    def __call__(self, number: int, embeddings: Tensor, scorer: Scorer) -> Tensor:
        """The loss of time step `number`, a scalar; `embeddings` float[roots, D] are this rank's roots'.

        Collective, unless edges are dealt, so that each rank has all ends of its own.

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
            scores = scorer(*(take_rows(rows, each) for each in ends))
            loss = self.task.pair_loss(scores, torch.from_numpy(step.targets).to(device), self.weight)
            loss.backward()
        assert rows.grad is not None, "scores depend on all rows, if by nothing"

        # Gradients go home.
        returned = own.new_empty((len(sent), own.shape[1]))
        self._exchange(rows.grad[count:].contiguous(), step.receive_counts, returned, step.send_counts)
        gradient = torch.cat([rows.grad[:count], returned])
        every = torch.cat([torch.arange(count, device=device), sent])
        return value_with_gradient(embeddings, sums_by_row(gradient, every, count), loss.detach())

    def _exchange(self, send: Tensor, send_counts, receive: Tensor, receive_counts) -> None:
        if not self.travels:
            return
        with self.phases("exchange"):
            self.communicator.exchange(send, send_counts, receive, receive_counts, KIND)
