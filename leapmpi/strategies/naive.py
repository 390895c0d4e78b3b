"""`naive`: feature-centric training without micrographs, which LeapGNN (FAST'25) sets its own scheme against.

Model d, with its whole share of the batch, starts at rank d and visits the ranks in a ring. Each adds what its own rows
contribute to the first layer; the sums travel on with the parameters and the blocks, and no feature row ever moves. The
last rank visited computes the other layers and the loss. The way back is the same in reverse: the gradient of the sums
goes to where rows lie, and each rank adds its share of the first layer's gradients to those that travel along.
All models are under way at once: rank s holds model (s + t) mod N at step t.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from leapmpi.comm.id_codec import IdCodec
from leapmpi.engine.first_layer.base import FirstLayerMode, no_residual
from leapmpi.engine.fixed_mode import FixedModeStrategy
from leapmpi.engine.ring_payload import RingPayload, RingVisit, RowPayload, SumPayload, arrays, block_of, flat
from leapmpi.nn.gradient import pass_back
from leapmpi.nn.tensors import BlockTensors
from leapmpi.plan.homes import home_of

if TYPE_CHECKING:
    from leapmpi.engine.context import RankContext
    from leapmpi.engine.minibatch import MicroBatch, MiniBatch
    from leapmpi.plan.traffic_model import Traffic
    from leapmpi.sampling.block import Block


@dataclass
class RingRound:
    """One iteration on this rank: the visits by time step, and what it takes to train the model that ends here.

    arrive: makes of its cargo what the first layer's `finish` wants; blocks: those of the other layers.
    """

    visits: list[RingVisit]
    arrive: Callable[[Any], Any]
    blocks: list[BlockTensors]


class RingMode(FirstLayerMode):
    """What the first layer has gathered travels with the model, there and back."""

    def __init__(self, ctx: RankContext) -> None:
        super().__init__(ctx)
        self.cargo = (SumPayload if ctx.model.layers[0].linear else RowPayload)(ctx)
        self.ranges = IdCodec.anywhere(ctx.rank_offsets)

    @staticmethod
    def refusal(model: Any) -> str | None:
        """Refuses first layers with a residual."""
        return no_residual(model)

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """What travels with the model that starts here, there and back."""
        return sum(sum(sizes.values()) for hop in self._hops(minibatch) for sizes in hop)

    def predict(self, minibatches: Sequence[MiniBatch], traffic: Traffic) -> None:
        """The journey of the model that starts here, and the rows it reads wherever it comes."""
        rank, ranks, minibatch = self.ctx.communicator.rank, traffic.ranks, minibatches[self.ctx.communicator.rank]
        for hop, (there, back) in enumerate(self._hops(minibatch)):
            traffic.add_hop((rank - hop) % ranks, 1, there)
            traffic.add_hop((rank - hop - 1) % ranks, -1, back)
            traffic.add_request(rank, np.zeros(ranks, np.int64), self.ranges.id_bytes, "ids", 0)
        read = np.bincount(home_of(minibatch.micro_batches[0].blocks[-1].src, self.ctx.rank_offsets), minlength=ranks)
        for place, count in enumerate(read):
            traffic.add_rows(place, "local", int(count))

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """Rows of all models that are read here, about as many as one model reads, and their shares with gradients."""
        rows, copies = micro_batch.blocks[-1].n_src, (not self.ctx.scatters) + (self.ctx.model.layers[0].dropout > 0)
        shares = 3 * self.cargo.width * self.ctx.parameters.values.element_size()
        return rows * (copies * self.ctx.input_row_bytes + shares)

    def _hops(self, minibatch: MiniBatch) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
        """Bytes by kind that go from rank to rank with the model that starts here, on the way there and back."""
        ctx, parcel = self.ctx, self._pack(minibatch.micro_batches[0].blocks)
        model, row = ctx.parameters.values.nbytes, self.cargo.width * ctx.parameters.values.element_size()
        for hop in range(ctx.communicator.size - 1):
            parcel = self.cargo.leave(parcel, *self._bounds((ctx.communicator.rank - hop) % ctx.communicator.size))
            gathered = self.cargo.gathered(parcel, ctx.communicator.rank, hop + 1) * row
            blocks = self.ranges.id_bytes * len(flat(parcel))
            yield (
                {"ids": blocks, "parameters": model, "activations": gathered},
                {"gradients": model, "activations": gathered},
            )

    def _bounds(self, rank: int) -> np.ndarray:
        return self.ctx.rank_offsets[rank : rank + 2]

    def ask(self, minibatch: MiniBatch) -> None:
        """Send the blocks round, and see what each model needs here: none of it depends on the weights. Collective."""
        ctx, ranks, visits = self.ctx, self.ctx.communicator.size, []
        parcel = self._pack(minibatch.micro_batches[0].blocks)
        for step in range(ranks):
            with ctx.phases("sample"):
                visits.append(self.cargo.visit(parcel, (ctx.communicator.rank + step) % ranks, minibatch.dropout))
            ctx.communicator.byte_counters.add_rows("local", visits[-1].read)
            if step + 1 < ranks:
                parcel = self._pass_blocks(self.cargo.leave(parcel, *self._bounds(ctx.communicator.rank)))
        with ctx.phases("sample"):
            minibatch.asked = [RingRound(visits, self.cargo.arrive(parcel, minibatch.dropout), self._unpack(parcel))]

    def train(self, minibatch: MiniBatch, number: int, labels: Any) -> float:
        """Round the ring, train the model that ends here, and back. Collective."""
        trip: RingRound = minibatch.asked[number]
        carried = self._there(trip).requires_grad_()
        with self.ctx.phases("compute"):
            loss = self.loss(minibatch, number, self._rest(minibatch, trip, carried), labels)
            loss.backward()
        self._back(trip, torch.zeros_like(carried) if carried.grad is None else carried.grad.contiguous())
        return float(loss.detach())

    @torch.no_grad()
    def logits(self, minibatch: MiniBatch, number: int) -> Any:
        """Round the ring, and from its end to where the model started. Collective."""
        trip: RingRound = minibatch.asked[number]
        carried = self._there(trip)
        with self.ctx.phases("compute"):
            outputs = self._rest(minibatch, trip, carried)
        with self.ctx.phases("migrate"):
            return self._pass(outputs, len(minibatch.micro_batches[number].roots), -1, "activations")

    def _rest(self, minibatch: MiniBatch, trip: RingRound, carried: Any) -> Any:
        """The outputs of the model that ends here. Local."""
        model = self.ctx.model
        first = model.layers[0].finish(None, trip.arrive(carried), None)
        # The first layer's block has done its work.
        return model.after_first([*trip.blocks, None], first, minibatch.dropout)

    def _there(self, trip: RingRound) -> Any:
        """Add the shares of own rows to the cargo of one model after the other; returns the last one's. Collective."""
        ctx, values, carried = self.ctx, self.ctx.parameters.values, None
        for step, visit in enumerate(trip.visits):
            if step:
                with ctx.phases("migrate"):
                    ctx.communicator.ring_hop(values, (("parameters", values.nbytes),))
                    carried = self._pass(carried, visit.before, -1, "activations")
            with ctx.phases("compute"):
                visit.share = visit.make()
                share = visit.share.detach()
                carried = self.cargo.join(carried, share) if step else share
        return carried

    def _back(self, trip: RingRound, gradient: Any) -> None:
        """Give every share its gradient; first-layer gradients are added to those on their way home. Collective."""
        gradients = self.ctx.parameters.gradients
        for step in reversed(range(len(trip.visits))):
            visit = trip.visits[step]
            with self.ctx.phases("compute"):
                pass_back(visit.share, self.cargo.own_gradient(visit, gradient))
                visit.share = None
            if step:
                with self.ctx.phases("migrate"):
                    gradient = self._pass(gradient[: visit.before], trip.visits[step - 1].after, 1, "activations")
                    gradients.copy_(self._pass(gradients, len(gradients), 1, "gradients"))

    def _pass(self, rows: Any, arriving: int, to: int, kind: str) -> Any:
        """Send `rows` to this rank + `to`; returns the `arriving` ones of this rank - `to`. Collective."""
        communicator = self.ctx.communicator
        received = rows.new_empty((arriving, *rows.shape[1:]))
        sent, expected = np.zeros(communicator.size, np.int64), np.zeros(communicator.size, np.int64)
        sent[(communicator.rank + to) % communicator.size], expected[(communicator.rank - to) % communicator.size] = (
            len(rows),
            arriving,
        )
        communicator.exchange(rows, sent, received, expected, kind)
        return received

    def _pass_blocks(self, parcel: RingPayload) -> RingPayload:
        """Send `parcel` to the next rank to be visited; returns the one that comes here. Collective."""
        communicator, words = self.ctx.communicator, flat(parcel)
        counts = np.zeros(communicator.size, np.int64)
        counts[(communicator.rank - 1) % communicator.size] = len(words)
        return arrays(communicator.exchange_ids(words, counts, self.ranges)[0])

    def _pack(self, blocks: list[Block]) -> RingPayload:
        parcel = self.cargo.pack(blocks[-1])
        for block in blocks[:-1]:
            parcel += [np.diff(block.indptr), block.indices.astype(np.int64)]
        return parcel

    def _unpack(self, parcel: RingPayload) -> list[BlockTensors]:
        """The blocks of all layers but the first. Their sources are the first of the first layer's."""
        topology, upper = self.ctx.sampler.topology, parcel[self.cargo.head :]
        counts, indices = upper[::2], upper[1::2]
        sources = [len(each) for each in (*counts[1:], parcel[1])]
        return [
            block_of(topology, hop, parcel[0][:n_src], counts[hop], indices[hop], self.ctx.device)
            for hop, n_src in enumerate(sources[: len(counts)])
        ]


class Naive(FixedModeStrategy):
    """Equal shares of the shuffled batch, one for each model; models visit the features of their whole share."""

    def own_mode(self) -> tuple[str, type[FirstLayerMode]]:
        """The ring."""
        return "ring", RingMode

    def labelled(self, minibatch: MiniBatch) -> list[np.ndarray]:
        """The roots of the model that ends here, which started on the rank before."""
        communicator = self.ctx.communicator
        return [minibatch.schedule.cell((communicator.rank - 1) % communicator.size, 0)]


STRATEGY = Naive
