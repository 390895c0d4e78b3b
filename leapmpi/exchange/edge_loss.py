"""The loss of a micro-batch of edges, whose ends may be embedded on other ranks.

Embeddings of remote ends travel to the rank that scores an edge, their gradients travel back; nothing else does. Who
needs which is known to all ranks from the plan, so no ids are sent.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.stage import Transfer
from leapmpi.exchange.step_scores import scores_of
from leapmpi.nn.gradient import value_with_gradient
from leapmpi.nn.scorer import Scorer, sums_by_row
from leapmpi.nn.task import EdgeTask
from leapmpi.plan.edge_plan import EdgePlan
from leapmpi.sampling.replaced_ends import SharedEnds

KIND = "embeddings"
"""The kind under which their bytes are counted."""


class EdgeLoss:
    """The loss over the steps of `rank` in `plan`; `task` gives the loss of a score."""

    def __init__(self, plan: EdgePlan, rank: int, task: EdgeTask, ctx: RankContext) -> None:
        self.plan, self.steps = plan, plan.of_rank(rank)
        self.task, self.travels = task, plan.travels
        self.transfers = [Transfer(ctx, each.send_counts, each.receive_counts, task.width, KIND) for each in self.steps]

    def count(self, number: int) -> None:
        """Count what scoring time step `number` sends. Local: nothing is computed."""
        if self.travels:
            self.transfers[number].count()

    def held_bytes(self, number: int, row_bytes: int) -> int:
        """Estimate the bytes that scoring time step `number` takes on this rank beside the rows of its roots.

        These are remote rows with gradients, sent rows, returned gradients, the rows that are scored with gradients,
        and the scores of shared candidates.
        """
        step = self.steps[number]
        edges, rows, scores = len(step.source), 4 * len(step.source), 0
        for each in step.replaced:
            candidates = len(each.vertices())
            # Others are scored pair by pair, at worst.
            shared = isinstance(each, SharedEnds)
            rows += (2 if shared else 4) * candidates
            scores += 4 * edges * candidates if shared else 0
        element = row_bytes // self.task.width
        return row_bytes * (2 * int(step.receive_counts.sum()) + 2 * len(step.sent) + rows) + element * scores

    def __call__(self, number: int, embeddings: Tensor, scorer: Scorer) -> Tensor:
        """Return the loss of time step `number`, a scalar; `embeddings` float[roots, D] are those of this rank's roots.

        Collective, unless each rank embeds all ends of its own edges.

        Gradients of the scorer's parameters are added at once. The scalar's backward pass continues with those of
        embeddings, summed over the shares of all ranks.
        """
        step, own, count = self.steps[number], embeddings.detach(), len(embeddings)
        device = own.device
        sent = torch.from_numpy(step.sent).to(device)

        # The plan gives the counts on all ranks, so no ids travel with the rows.
        transfer = self.transfers[number]
        arrived = transfer.start(own[sent])() if self.travels else own[:0]

        # The backward pass runs at once: other ranks' rows are not part of this rank's autograd graph.
        rows = torch.cat([own, arrived])
        with torch.enable_grad():
            rows.requires_grad_()
            labels = None if step.labels is None else torch.from_numpy(step.labels).to(device)
            found = scores_of(scorer, rows, step)
            batch = len(self.plan.edges)
            losses = [self.task.checked(self.task.loss_of_edges(*each, labels, batch)) for each in found]
            loss = torch.stack(losses).sum()
            loss.backward()
        assert rows.grad is not None, "scores depend on all rows, if by nothing"

        # Owners need the gradients of their rows before their own embeddings can be backpropagated.
        returned = transfer.start_back(rows.grad[count:].contiguous())() if self.travels else own[:0]
        gradient = torch.cat([rows.grad[:count], returned])
        every = torch.cat([torch.arange(count, device=device), sent])
        return value_with_gradient(embeddings, sums_by_row(gradient, every, count), loss.detach())
