"""A compute rank's part of an iteration: receive prepared shares, forward and backward, sum the gradients."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from leapmpi.comm.communicator import Communicator
from leapmpi.config.sections import StrategyConfig
from leapmpi.engine.disaggregated.prepared_share import ROWS_IN_PLACE, SPARSE_ROWS, SUMS, TYPED_ROWS, PreparedShare
from leapmpi.engine.disaggregated.shipping import Shipping, depth_of
from leapmpi.engine.engine import Engine, Preparation
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.rows import Rows, ScatteredRows, SparseMatrix
from leapmpi.nn.tensors import Edges, to_tensors
from leapmpi.nn.typed_matrix import TypedMatrix
from leapmpi.system.counter_rng import DrawKey


@dataclass
class ReceivedMiniBatch(MiniBatch):
    """A mini-batch as it has arrived: shares, and by share its matrix float[rows, width]."""

    shares: list[PreparedShare] = field(default_factory=list)
    matrices: list[Tensor] = field(default_factory=list)


class ShareReception(Preparation):
    """Receives shares that preparation ranks send."""

    reads_rows = False

    def __init__(self, engine: Engine, shipping: Shipping) -> None:
        super().__init__(engine)
        self.shipping = shipping

    @property
    def prefetch_depth(self) -> int:
        """Number of mini-batches that may wait here: two unless another number is given."""
        return depth_of(self.engine.config)

    def ready(self, key: DrawKey) -> MiniBatch | None:
        """Receive the next mini-batch. It is that of `key`, since shares arrive in order. Collective."""
        with self.ctx.phases("exchange"):
            shares, matrices = self.shipping.receive()
        return ReceivedMiniBatch(None, key, [], shares=shares, matrices=matrices)

    def request(self, minibatch: MiniBatch) -> None:
        """Request nothing: shares are complete. Local."""

    def timed(self, batch: np.ndarray | None) -> tuple[float, float, float]:
        """Train the first mini-batch without a step; return no seconds of preparing, those of arrival and computing."""
        gradients = self.ctx.parameters.gradients
        gradients.zero_()
        minibatch = self.engine.plan(batch, 0, 0)
        begin = time.perf_counter()
        self.engine.forward_backward(minibatch)
        seconds = time.perf_counter() - begin
        gradients.zero_()
        return 0.0, self.shipping.seconds, seconds


class ShareTraining:
    """Step of a compute rank: forward and backward of its shares. Gradients and losses are summed in share order."""

    def __init__(self, ctx: RankContext, shipping: Shipping) -> None:
        self.ctx, self.shipping, roles = ctx, shipping, shipping.roles
        self._shares_by_rank = np.array([len(roles.computed_by(rank)) for rank in range(roles.computing)])

    def __call__(self, minibatch: MiniBatch) -> float:
        """Put the gradient of the whole batch into the parameters; return its loss on rank 0, else 0. Collective."""
        assert isinstance(minibatch, ReceivedMiniBatch), "it has been received"
        if self.ctx.ranks == 1:
            # One rank's gradients add up in order by themselves.
            each = zip(minibatch.shares, minibatch.matrices, strict=True)
            return sum((self.train(share, matrix, minibatch.dropout) for share, matrix in each), 0.0)
        # One gradient is kept for each share: summed in the order of shares, bits do not depend on the number of ranks.
        counts = self._shares_by_rank
        gradients, losses, found = self.ctx.parameters.gradients, np.zeros(int(counts.max())), []
        for number, (share, matrix) in enumerate(zip(minibatch.shares, minibatch.matrices, strict=True)):
            losses[number] = self.train(share, matrix, minibatch.dropout)
            found.append(gradients.clone())
            gradients.zero_()
        with self.ctx.phases("reduce"):
            sum_in_order(self.ctx.communicator, torch.stack(found), counts, gradients)
            table = self.ctx.communicator.all_gather_rows(losses)
        # Callers add up what ranks return, so one of them returns the whole.
        if self.ctx.rank:
            return 0.0
        return sum((float(loss) for row, count in zip(table, counts, strict=True) for loss in row[:count]))

    def train(self, share: PreparedShare, matrix: Tensor, key: DrawKey | None) -> float:
        """Run forward and backward of one share and return its loss; `key` is that of dropout masks. Local."""
        device = self.ctx.device
        with self.ctx.phases("compute"):
            outputs = self._outputs(share, matrix, key)
            labels = torch.from_numpy(share.labels).to(device)
            weight: float | Tensor
            if isinstance(share.weights, float):
                weight = share.weights
            else:
                weight = torch.from_numpy(share.weights).to(device, outputs.dtype)
            loss = self.ctx.task.checked(self.ctx.task.loss(outputs, labels, weight))
            self.ctx.model.backward(loss)
        return float(loss.detach())

    def _outputs(self, share: PreparedShare, matrix: Tensor, key: DrawKey | None) -> Tensor:
        """Return the model's outputs for the roots of `share`."""
        model, device = self.ctx.model, self.ctx.device
        blocks = [to_tensors(block, device) for block in share.blocks]
        if share.edge_features is not None:
            features = (torch.from_numpy(each).to(device) for each in share.edge_features)
            blocks = [replace(block, edge_features=each) for block, each in zip(blocks, features, strict=True)]
        if share.form != SUMS:
            return model(blocks, self._rows(share, matrix), key)
        matrix, layer = matrix.to(device, non_blocking=True), model.layers[0]
        sums, own = matrix.chunk(2) if layer.sums.needs_own else (matrix, None)
        return model.after(0, blocks, layer.sums.output(sums, own), key)

    def _rows(self, share: PreparedShare, matrix: Tensor) -> Rows:
        """Return the rows of the first layer's sources, read as a rank that has fetched them would."""
        device = self.ctx.device
        if share.form == SPARSE_ROWS:
            indptr, indices, values = (torch.from_numpy(each).to(device) for each in share.rows)
            return SparseMatrix(Edges(indptr, indices, self.shipping.width), values)
        if share.form == TYPED_ROWS:
            found = [None if each is None else torch.from_numpy(each).to(device) for each in share.rows]
            types, places, *features = found
            assert types is not None, "they are sent"
            assert places is not None, "they are sent"
            return TypedMatrix(self.ctx.model.layers[0].in_dim, features, None, types, places, places)
        # Kernels that read rows by address sum in the same order as on a rank that has fetched them: the same bits.
        if share.form == ROWS_IN_PLACE and on_host(device):
            addresses = matrix.data_ptr() + matrix.stride(0) * matrix.element_size() * torch.arange(len(matrix))
            return ScatteredRows(addresses, self.shipping.width, (matrix,))
        return matrix.to(device, non_blocking=True)


def sum_in_order(communicator: Communicator, gradients: Tensor, shares: np.ndarray, into: Tensor) -> None:
    """Sum `gradients` float[k, n] of all ranks into `into` float[n], in the order of ranks and rows. Collective.

    So the sum does not depend on which rank trained which share: it has the bits of an all-reduce over as many ranks
    as there are shares. `shares` int64[ranks] holds the number of rows of each rank. Each rank adds one slice of all
    rows and sends the sum to all.
    """
    size, rank, length = communicator.size, communicator.rank, into.shape[0]
    bounds = np.arange(size + 1, dtype=np.int64) * length // size
    widths = np.diff(bounds)

    # Rank r gets slice r of all rows of all ranks.
    sent = torch.cat([gradients[:, begin:end].reshape(-1) for begin, end in pairwise(bounds)])
    slices = sent.new_empty(int(shares.sum() * widths[rank]))
    communicator.exchange(sent, len(gradients) * widths, slices, shares * widths[rank], "gradients")

    # It adds them in order, and all ranks get all sums.
    slices = slices.reshape(int(shares.sum()), int(widths[rank]))
    total = slices[0].clone()
    for each in slices[1:]:
        total += each
    mine = np.full(size, widths[rank])
    communicator.exchange(total.repeat(size), mine, into, widths, "gradients")


def computing_engine(ctx: RankContext, config: StrategyConfig, shipping: Shipping) -> Engine:
    """Return the engine of a rank that computes; `ctx` is its context among those ranks."""
    return Engine(
        ctx, config, preparation=partial(ShareReception, shipping=shipping), step=ShareTraining(ctx, shipping)
    )
