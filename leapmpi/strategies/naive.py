"""`naive`: feature-centric training without micrographs, a baseline of LeapGNN (FAST'25).

Model d, with its whole share of the batch, starts at rank d and visits the ranks in a ring. Each rank adds the
contribution of its local rows to the first layer; the sums travel on with the parameters and the blocks, and no feature
row ever moves. The last rank visited computes the other layers and the loss. The way back is the same in reverse: the
gradient of the sums visits the owners of the rows, and each adds its share of the first layer's gradients. All models
are under way at once: rank s holds model (s + t) mod N at step t.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from leapmpi.comm.id_codec import IdCodec
from leapmpi.engine.even_placement import EvenPlacement, fixed_mode, looks_up_all_ranks, one_time_step
from leapmpi.engine.placement import Strategy
from leapmpi.engine.ring_payload import (
    BlockArrays,
    RingPayload,
    RingVisit,
    RowPayload,
    SumPayload,
    block_of,
    from_words,
    to_words,
)
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.layer_feed import LayerFeed
from leapmpi.exchange.minibatch import MicroBatch, MiniBatch
from leapmpi.exchange.mode import ExchangeMode
from leapmpi.exchange.stage import Transfer
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.gradient import pass_back
from leapmpi.nn.layer import Layer
from leapmpi.nn.rows import Rows
from leapmpi.nn.tensors import BlockTensors
from leapmpi.sampling.block import Block


class RingFeed(LayerFeed):
    """The first layer of one iteration: models go round the ring, and the one that ends here is finished.

    visits: by time step. layer_input: from all gathered rows to what the layer's `finish` adds up. upper_blocks: those
    of the other layers of the model that ends here.
    """

    def __init__(
        self,
        ctx: RankContext,
        payload: RingPayload,
        visits: list[RingVisit],
        layer_input: Callable[[Tensor], Tensor],
        upper_blocks: list[BlockTensors],
    ) -> None:
        super().__init__(ctx, ctx.model.layers[0])
        self.payload, self.visits, self.layer_input, self.upper_blocks = payload, visits, layer_input, upper_blocks

    def forward(self, below: Rows | None, key: DropoutKey | None) -> Tensor:
        """Add the shares of local rows to what one model after the other has gathered; finish the last. Collective."""
        ctx, values = self.ctx, self.ctx.parameters.values
        gathered = values.new_empty((0, self.payload.width))
        for step, visit in enumerate(self.visits):
            if step:
                with ctx.phases("migrate"):
                    self._send_model()
                    gathered = self._transfer(step).start(gathered)()
            with ctx.phases("compute"):
                visit.share = visit.compute()
                share = visit.share.detach()
                gathered = gathered + share if step and self.payload.adds else torch.cat((gathered, share))
        with ctx.phases("compute"):
            self._gathered = gathered.requires_grad_(torch.is_grad_enabled())
            self._output = self.layer.finish(None, self.layer_input(gathered), None)
        return self._output

    def backward(self, gradient: Tensor) -> Tensor | None:
        """Give every share its gradient; first-layer gradients are added to those that return. Collective."""
        # Gradients travel the ring in the opposite direction, with those of the first layer's weights.
        gathered = self._gathered
        with self.ctx.phases("compute"):
            pass_back(self._output, gradient)
            back = torch.zeros_like(gathered) if gathered.grad is None else gathered.grad.contiguous()
        del self._output, self._gathered
        for step in reversed(range(len(self.visits))):
            visit = self.visits[step]
            assert visit.share is not None, "`forward` has computed it"
            with self.ctx.phases("compute"):
                # Rows from before this visit get their gradients on ranks that the model passes later on its way back.
                pass_back(visit.share, back if self.payload.adds else back[visit.before :])
                visit.share = None
            if step:
                with self.ctx.phases("migrate"):
                    back = self._transfer(step).start_back(back[: visit.before])()
                    self._return_gradients()
        return None

    def count(self) -> None:
        """Count the model and its gradients on all hops, with what it has gathered."""
        for step in range(1, len(self.visits)):
            self._send_model()
            self._transfer(step).count()
            self._return_gradients()

    def _send_model(self) -> None:
        values = self.ctx.parameters.values
        self.ctx.communicator.ring_hop(values, (("parameters", values.nbytes),))

    def _return_gradients(self) -> None:
        gradients = self.ctx.parameters.gradients
        self.ctx.communicator.ring_hop(gradients, (("gradients", gradients.nbytes),), -1)

    def _transfer(self, step: int) -> Transfer:
        """Return the transfer of gathered rows from the rank after this one, where the model was before `step`."""
        ctx, ranks = self.ctx, np.arange(self.ctx.ranks)
        sent = np.where(ranks == (ctx.rank - 1) % ctx.ranks, self.visits[step - 1].after, 0)
        received = np.where(ranks == (ctx.rank + 1) % ctx.ranks, self.visits[step].before, 0)
        return Transfer(ctx, sent, received, self.payload.width)

    def returned(self, outputs: Tensor, roots: int) -> Tensor:
        """Send the outputs from the end of the ring to the rank where the model started. Collective."""
        with self.ctx.phases("migrate"):
            rank, ranks = self.ctx.rank, np.arange(self.ctx.ranks)
            sent = np.where(ranks == (rank - 1) % len(ranks), len(outputs), 0)
            arriving = np.where(ranks == (rank + 1) % len(ranks), roots, 0)
            return Transfer(self.ctx, sent, arriving, outputs.shape[1]).start(outputs)()


class RingMode(ExchangeMode):
    """Rows or sums of the first layer that travel with the model, forward and back."""

    needs_weights = True
    description = "models with the blocks of their roots and what their first layer gathers, past all ranks and back"

    @classmethod
    def refusal(cls, layer: Layer) -> str | None:
        """Refuse features of edges: blocks travel, and the rows of their edges do not."""
        if layer.splits and "edge_features" in layer.edge_data:
            return "it reads features of edges, which do not travel with blocks"
        return super().refusal(layer)

    def __init__(self, ctx: RankContext) -> None:
        super().__init__(ctx)
        self.payload: RingPayload = (SumPayload if self.layer.linear else RowPayload)(ctx)
        self.id_codec = IdCodec.any_id(ctx.rank_offsets)

    def predicted_bytes(self, minibatch: MiniBatch) -> int:
        """Return the bytes that travel with the model that starts here, forward and back."""
        return sum(sum(sizes.values()) for hop in self._hops(minibatch) for sizes in hop)

    def step_bytes(self, micro_batch: MicroBatch, alone: bool) -> int:
        """Return rows of all models that are read here, about as many as one model reads, and their shares with
        gradients.
        """
        rows, copies = micro_batch.blocks[-1].n_src, (not self.ctx.scatters) + (self.layer.dropout > 0)
        shares = 3 * self.payload.width * self.ctx.parameters.values.element_size()
        return rows * (copies * self.ctx.input_row_bytes + shares)

    def _hops(self, minibatch: MiniBatch) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
        """Return bytes by kind that go from rank to rank with the model that starts here, on the way there and back."""
        ctx, payload = self.ctx, self.payload
        blocks = self._pack(minibatch.micro_batches[0].blocks)
        model, row = ctx.parameters.values.nbytes, payload.width * ctx.parameters.values.element_size()
        for hop in range(ctx.ranks - 1):
            at = (ctx.rank - hop) % ctx.ranks
            blocks = payload.without_edges_of(blocks, *ctx.rank_offsets[at : at + 2])
            gathered = payload.gathered(blocks, ctx.rank, hop + 1) * row
            ids = self.id_codec.id_bytes * len(to_words(blocks))
            yield (
                {"ids": ids, "parameters": model, "activations": gathered},
                {"gradients": model, "activations": gathered},
            )

    def request(self, minibatch: MiniBatch) -> None:
        """Send the blocks around the ring, and see what each model reads here; no weights are needed. Collective."""
        ctx, payload, visits = self.ctx, self.payload, []
        blocks = self._pack(minibatch.micro_batches[0].blocks)
        for step in range(ctx.ranks):
            with ctx.phases("sample"):
                visits.append(payload.visit(blocks, (ctx.rank + step) % ctx.ranks, minibatch.dropout))
            ctx.communicator.byte_counters.add_rows("local", visits[-1].read)
            if step + 1 < ctx.ranks:
                # Edges from rows of this rank have been read here: later ranks need them no more.
                words = to_words(payload.without_edges_of(blocks, *ctx.local_range))
                counts = np.where(np.arange(ctx.ranks) == (ctx.rank - 1) % ctx.ranks, len(words), 0)
                blocks = from_words(ctx.communicator.exchange_ids(words, counts, self.id_codec)[0])
        with ctx.phases("sample"):
            layer_input = payload.layer_input(blocks, minibatch.dropout)
            minibatch.feeds = [[RingFeed(ctx, payload, visits, layer_input, self._unpack(blocks))]]

    def _pack(self, blocks: list[Block]) -> BlockArrays:
        """Return the arrays of the blocks of all layers."""
        packed = self.payload.pack(blocks[-1])
        for block in blocks[:-1]:
            packed += [np.diff(block.indptr), block.indices.astype(np.int64)]
        return packed

    def _unpack(self, blocks: BlockArrays) -> list[BlockTensors]:
        """Return the blocks of all layers but the first. Their sources are the first of the first layer's.

        Of a single layer, a block without edges, which names the roots.
        """
        topology, upper = self.ctx.sampler.topology, blocks[self.payload.head :]
        if not upper:
            none = np.zeros(len(blocks[1]), np.int64)
            return [block_of(topology, 0, blocks[0][: len(none)], none, none[:0], self.ctx.device)]
        counts, indices = upper[::2], upper[1::2]
        sources = [len(each) for each in (*counts[1:], blocks[1])]
        return [
            block_of(topology, hop, blocks[0][:n_src], counts[hop], indices[hop], self.ctx.device)
            for hop, n_src in enumerate(sources[: len(counts)])
        ]


MEMBER = Strategy(
    EvenPlacement,
    one_time_step,
    mode=fixed_mode("ring", lambda ctx: RingMode),
    roots_are_local=False,
    labels_from=-1,
    why_whole_topology=looks_up_all_ranks,
)
"""Equal shares of the shuffled batch, one for each model; models visit the features of their whole share.

A model ends on the rank after which it started: the rank before has the roots of its loss.
"""
