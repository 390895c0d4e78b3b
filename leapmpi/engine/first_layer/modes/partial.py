"""`partial`: no feature row travels. The owner of remote neighbours returns their sum, already projected.

The requester names destinations only. Sampling is pure and the topology is on every node, so the owner draws the
same neighbours again, adds up those at home with it, multiplies by the first layer's weights and returns H numbers
per destination; the destination's own part comes from its home in the same way. Linear aggregation only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.comm.id_codec import IdRanges
from leapmpi.engine.first_layer.base import Asked, ExchangedMode, no_residual
from leapmpi.engine.first_layer.overlap import Apart, Computed, Together
from leapmpi.engine.first_layer.partial_block import Contribution, Pieces
from leapmpi.plan.homes import home_of
from leapmpi.system.jit import compiled

if TYPE_CHECKING:
    from leapmpi.engine.minibatch import Cell, Iteration
    from leapmpi.nn.tensors import BlockTensors
    from leapmpi.plan.traffic_model import Traffic
    from leapmpi.sampling.block import Block


@compiled
def _owners(indptr, indices, home, rank, ranks):
    """Which ranks each destination depends on: counts int64[ranks] and destinations int64, in order of rank.

    `home` is int64[n_src]; the first n_dst sources are the destinations. The own rank is left out.
    """
    n_dst = len(indptr) - 1
    last = np.full(ranks, -1, np.int64)
    counts = np.zeros(ranks, np.int64)
    total = 0
    pairs = np.empty((len(indices) + n_dst, 2), np.int64)
    for i in range(n_dst):
        for e in range(indptr[i] - 1, indptr[i + 1]):
            owner = home[i] if e < indptr[i] else home[indices[e]]
            if owner != rank and last[owner] != i:
                last[owner] = i
                counts[owner] += 1
                pairs[total, 0], pairs[total, 1] = owner, i
                total += 1
    place = np.cumsum(counts) - counts
    destinations = np.empty(total, np.int64)
    for k in range(total):
        owner = pairs[k, 0]
        destinations[place[owner]] = pairs[k, 1]
        place[owner] += 1
    return counts, destinations


class Partial(ExchangedMode):
    """The matrix of the first layer holds one row per destination, to which every rank adds its share."""

    def __init__(self, at: Any) -> None:
        super().__init__(at)
        first, end = (int(bound) for bound in at.rank_offsets[at.wire.rank : at.wire.rank + 2])
        # A rank is asked about destinations that are at home anywhere.
        self.ranges = IdRanges.anywhere(at.rank_offsets)
        self.pieces = Pieces(at.sampler.topology, first, end, at.device)

    @staticmethod
    def refusal(model: Any) -> str | None:
        """Refuses attention, whose sums are not linear in the rows, and first layers with a residual."""
        if not model.layers[0].linear:
            return "its first layer weighs rows by what they hold, so sums cannot be taken apart"
        return no_residual(model)

    def predicted_bytes(self, work: Iteration) -> int:
        """Pairs of destination and owner: an id, a sum and its gradient."""
        layer = self.at.model.layers[0]
        pairs = sum(int(self._depends(cell.blocks[-1])[0].sum()) for cell in work.cells)
        return pairs * (self.ranges.id_bytes + 2 * layer.out_dim * layer.bias.element_size())

    def predict(self, works: Sequence[Iteration], traffic: Traffic) -> None:
        """Of each cell, destinations named to owners, their sums and the gradients; own rows are read for all ranks."""
        at, layer, rank = self.at, self.at.model.layers[0], self.at.wire.rank
        width = layer.out_dim * layer.bias.element_size()
        first, end = at.rank_offsets[rank : rank + 2]
        for number, cell in enumerate(works[rank].cells):
            counts, destinations = self._depends(cell.blocks[-1])
            traffic.add_request(rank, counts, self.ranges.id_bytes, "activations", width, width)
            read = np.zeros(end - first, bool)
            for work in works:
                src = work.cells[number].blocks[-1].src
                read[src[(src >= first) & (src < end)] - first] = True
            traffic.add_rows(rank, "local", int(read.sum()))
            traffic.add_rows(rank, "remote", len(destinations))

    def ask_for(self, work: Iteration, cell: Cell) -> Asked:
        """Name the destinations to the owners of their neighbours, and draw the neighbours of those named to us."""
        at, block = self.at, cell.blocks[-1]
        counts, destinations = self._depends(block)
        foreign, foreign_counts = at.wire.exchange_ids(block.src[destinations], counts, self.ranges)
        with at.phases("sample"):
            source = self._contribution(work, block, foreign)
        at.wire.ledger.add_rows("local", source.read)
        at.wire.ledger.add_rows("remote", len(destinations))
        return Asked(
            total=block.n_dst,
            own_positions=None,
            asked_positions=destinations,
            asked_counts=counts,
            answer_counts=foreign_counts,
            source=source,
        )

    def compute(self, work: Iteration, asked: Asked) -> Any:
        """This rank's shares: of its own destinations, then of those it was asked for."""
        source: Contribution = asked.source
        return self.at.model.layers[0].partial(
            source.piece, source.rows(self.at.features, self.at.scatters), work.dropout
        )

    def computed(self, work: Iteration, asked: Asked) -> Computed:
        """Shares of others' destinations before those of own ones, unless both need the same projected rows."""
        source: Contribution = asked.source
        layer, rows = self.at.model.layers[0], source.rows(self.at.features, self.at.scatters)
        if not layer.plain_prefix or layer.projects_first(source.piece, rows):
            return Together(layer.partial(source.piece, rows, work.dropout), asked.own)
        own, others = source.piece.split(asked.own)
        return Apart(layer.partial(others, rows, work.dropout), lambda: layer.partial(own, rows, work.dropout))

    def first_sums(self, work: Iteration, block: BlockTensors, rows: Any) -> Any:
        """The shares add up to what is wanted."""
        return rows

    def _depends(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        wire = self.at.wire
        home = home_of(block.src, self.at.rank_offsets)
        return _owners(block.indptr, block.indices, home, wire.rank, wire.size)

    def _contribution(self, work: Iteration, block: Block, foreign: np.ndarray) -> Contribution:
        """What own rows contribute to the block's destinations and to `foreign` ones."""
        batch = work.schedule.roots if work.schedule else None
        drawn = self.at.sampler.neighbours(work.key, block.hop, foreign, batch)
        indptr = np.concatenate((block.indptr, block.indptr[-1] + drawn.indptr[1:]))
        neighbours = np.concatenate((block.src[block.indices], drawn.neighbours))
        weight = None if block.weight is None else np.concatenate((block.weight, drawn.weight))
        destinations = np.concatenate((block.dst, foreign))
        layer, features = self.at.model.layers[0], self.at.features
        return self.pieces.contribution(layer, features, indptr, neighbours, destinations, weight=weight)


MODE = Partial
