"""`projected`: a remote row arrives multiplied by the first layer's weights, H numbers instead of F.

Serves every model whose layers offer the split, attention included; gradients of the projected rows travel back, and
the owner adds its share of the weights' gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.engine.first_layer.base import Asked, ExchangedMode, no_residual
from leapmpi.features.row_request import Request
from leapmpi.plan.homes import home_of

if TYPE_CHECKING:
    from leapmpi.engine.minibatch import Cell, Iteration
    from leapmpi.nn.tensors import BlockTensors
    from leapmpi.plan.traffic_model import Traffic


class Projected(ExchangedMode):
    """The owner projects the rows it is asked for; the matrix of the first layer holds one row per source."""

    @staticmethod
    def refusal(model: Any) -> str | None:
        """Refuses first layers with a residual."""
        return no_residual(model)

    def predicted_bytes(self, work: Iteration) -> int:
        """Remote sources of every cell: an id, a projected row and its gradient."""
        at, layer = self.at, self.at.model.layers[0]
        homes = (home_of(cell.blocks[-1].src, at.rank_offsets) for cell in work.cells)
        remote = sum(int((home != at.wire.rank).sum()) for home in homes)
        return remote * (at.features.ranges.id_bytes + 2 * layer.projected_width * layer.bias.element_size())

    def predict(self, works: Sequence[Iteration], traffic: Traffic) -> None:
        """Of each cell, the ids of remote sources, their projected rows and the gradients."""
        at, layer, rank = self.at, self.at.model.layers[0], self.at.wire.rank
        width = layer.projected_width * layer.bias.element_size()
        for cell in works[rank].cells:
            request = Request(cell.blocks[-1].src, at.rank_offsets, rank)
            ids = at.features.ranges.id_bytes
            traffic.add_request(rank, request.remote_counts, ids, "activations", width, width)
            traffic.add_rows(rank, "local", len(request.own_ids))
            traffic.add_rows(rank, "remote", len(request.remote_ids))

    def ask_for(self, work: Iteration, cell: Cell) -> Asked:
        """Ask the owners of remote sources for their projected rows. Collective."""
        at, ids = self.at, cell.blocks[-1].src
        request = Request(ids, at.rank_offsets, at.wire.rank)
        wanted, wanted_counts = at.wire.exchange_ids(request.remote_ids, request.remote_counts, at.features.ranges)
        at.wire.ledger.add_rows("local", len(request.own_ids))
        at.wire.ledger.add_rows("remote", len(request.remote_ids))
        return Asked(
            total=len(ids),
            own_positions=request.own_positions,
            asked_positions=request.remote_positions,
            asked_counts=request.remote_counts,
            answer_counts=wanted_counts,
            source=np.concatenate((request.own_ids, wanted)),
        )

    def compute(self, work: Iteration, asked: Asked) -> Any:
        """Project own and asked rows."""
        at = self.at
        rows = at.features.own(asked.source, at.scatters)
        original = self._index(at.sampler.topology.original_id[asked.source])
        return at.model.layers[0].projected(rows, original, work.dropout)

    def first_sums(self, work: Iteration, block: BlockTensors, rows: Any) -> Any:
        """Aggregate the projected rows."""
        return self.at.model.layers[0].from_projected(block, rows, work.dropout)


MODE = Projected
