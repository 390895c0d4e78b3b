"""The loss of a micro-batch of edges, whose ends may be embedded on other ranks.

Embeddings of remote ends travel to the rank that scores an edge, their gradients travel back; nothing else does. Who
needs which is known to all ranks from the plan, so no ids are sent.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.stage import Transfer
from leapmpi.nn.gradient import value_with_gradient
from leapmpi.nn.scorer import Scorer, sums_by_row, take_rows
from leapmpi.nn.task import EdgeTask
from leapmpi.plan.edge_plan import EdgePlan

KIND = "embeddings"
"""The kind under which their bytes are counted."""


class EdgeLoss:
    """The loss over the steps of `rank` in `plan`; `task` says how wrong a score is."""

    def __init__(
        self,
        plan: EdgePlan,
        rank: int,
        task: EdgeTask,
        ctx: RankContext,
    ) -> None:
        self.plan, self.steps, self.weight = plan, plan.of_rank(rank), plan.pair_weight
        self.task, self.travels = task, plan.travels
        self.transfers = [Transfer(ctx, each.send_counts, each.receive_counts, task.width, KIND) for each in self.steps]

    def count(self, number: int) -> None:
        """Count what scoring time step `number` sends. Local: nothing is computed."""
        if self.travels:
            self.transfers[number].count()

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
        transfer = self.transfers[number]
        arrived = transfer.start(own[sent])() if self.travels else own[:0]

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
        returned = transfer.start_back(rows.grad[count:].contiguous())() if self.travels else own[:0]
        gradient = torch.cat([rows.grad[:count], returned])
        every = torch.cat([torch.arange(count, device=device), sent])
        return value_with_gradient(embeddings, sums_by_row(gradient, every, count), loss.detach())
