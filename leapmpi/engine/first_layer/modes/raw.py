"""`raw`: feature rows travel as they are, each once per iteration (LeapGNN's pre-gathering)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from leapmpi.engine.first_layer.base import RemoteMode

if TYPE_CHECKING:
    from leapmpi.engine.minibatch import Cell, Iteration
    from leapmpi.plan.traffic_model import Traffic


class Raw(RemoteMode):
    """Fetches the union of all cells' input rows before the weights are needed."""

    @staticmethod
    def refusal(model: Any) -> str | None:
        """None: raw rows serve every model."""
        return None

    def predicted_bytes(self, work: Iteration) -> int:
        """Distinct remote rows of the iteration that are not cached, each once as id and as features."""
        features = self.at.features
        request = features.request(union(work.cells))
        rows = features.answer_bytes(request, exact=not work.drops)
        return len(request.remote_ids) * features.ranges.id_bytes + int(rows.sum())

    def predict(self, works: Sequence[Iteration], traffic: Traffic) -> None:
        """The union of input rows: ids out, rows in."""
        at, rank = self.at, self.at.wire.rank
        request = at.features.request(union(works[rank].cells))
        traffic.add_request(rank, request.remote_counts, at.features.ranges.id_bytes, "features", 0)
        traffic.add_answers(rank, "features", at.features.answer_bytes(request))
        traffic.add_rows(rank, "local", len(request.own_ids))
        traffic.add_rows(rank, "remote", len(request.remote_ids))
        traffic.add_rows(rank, "cached", len(request.cached_slots))

    def held_bytes(self, work: Iteration) -> int:
        """Remote rows as they arrived and as they were asked for, and a copy of all unless they are read there."""
        features, rows = self.at.features, union(work.cells)
        missing = features.missing(rows)
        decoded = missing if features.encoding else 0
        copied = decoded if self.at.scatters else len(rows)
        return 2 * missing * features.sent_row_bytes + copied * self.at.input_row_bytes

    def step_bytes(self, cell: Cell, alone: bool) -> int:
        """Nothing is copied of rows that are read where they lie."""
        return super().step_bytes(cell, alone or self.at.scatters)

    def ask(self, work: Iteration) -> None:
        """Ask for the rows; what is scored reads them exactly. Collective."""
        work.shipment = self.at.features.prepare(union(work.cells), exact=not work.drops, scattered=self.at.scatters)

    def train(self, work: Iteration, number: int, labels: Any) -> float:
        """Forward and backward on the rows at hand."""
        with self.at.phases("compute"):
            loss = self.loss(work, number, self._outputs(work, number), labels)
            loss.backward()
        return float(loss.detach())

    @torch.no_grad()
    def logits(self, work: Iteration, number: int) -> Any:
        """Forward on the rows at hand."""
        with self.at.phases("compute"):
            return self._outputs(work, number)

    def _outputs(self, work: Iteration, number: int) -> Any:
        cell = work.cells[number]
        features = work.features if cell.positions is None else work.features[cell.positions]
        return self.at.model(self.tensors(cell), features, work.dropout)


def union(cells: list[Cell]) -> np.ndarray:
    """Distinct input vertices of all cells; sets each cell's positions in them (pre-gathering, LeapGNN section 3)."""
    if len(cells) == 1:
        return cells[0].blocks[-1].src
    inputs = [cell.blocks[-1].src for cell in cells]
    rows, inverse = np.unique(np.concatenate(inputs), return_inverse=True)
    begin = 0
    for cell, ids in zip(cells, inputs, strict=True):
        cell.positions = inverse[begin : begin + len(ids)]
        begin += len(ids)
    return rows


MODE = Raw
