"""What a compute rank does in an iteration: receive prepared shares, forward and backward, add up the gradients."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from leapmpi.config.sections import StrategyConfig
from leapmpi.engine.disaggregated.ordered_sum import sum_in_order
from leapmpi.engine.disaggregated.prepared_share import ROWS_IN_PLACE, SPARSE_ROWS, SUMS, PreparedShare
from leapmpi.engine.disaggregated.shipping import Shipping
from leapmpi.engine.engine import Engine
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.rows import Rows, ScatteredRows, SparseMatrix
from leapmpi.nn.tensors import Edges, to_tensors
from leapmpi.system.counter_rng import TRAIN, DrawKey


@dataclass
class ReceivedMiniBatch(MiniBatch):
    """A mini-batch as it has arrived: shares, and by share its matrix float[rows, width]."""

    shares: list[PreparedShare] = field(default_factory=list)
    matrices: list[Tensor] = field(default_factory=list)


class ComputeEngine(Engine):
    """Trains shares that preparation ranks have sent; `ctx` is that of this rank among those that compute."""

    reads_rows = False

    def __init__(self, ctx: RankContext, config: StrategyConfig, shipping: Shipping) -> None:
        super().__init__(ctx, config)
        self.shipping, roles = shipping, shipping.roles
        self.shares_by_rank = np.array([len(roles.computed_by(rank)) for rank in range(roles.computing)])
        """int64[ranks]: how many shares each compute rank trains."""

    @property
    def prefetch_depth(self) -> int:
        """How many mini-batches may wait here: two unless another number is given."""
        return 2 if self.config.prefetch == "auto" else int(self.config.prefetch)

    def plan(self, batch: np.ndarray | None, epoch: int, iteration: int) -> MiniBatch:
        """The next mini-batch, which is that of `epoch` and `iteration`: shares come in order."""
        with self.ctx.phases("exchange"):
            shares, matrices = self.shipping.receive()
        key = DrawKey(TRAIN, self.ctx.seed, epoch, iteration)
        return ReceivedMiniBatch(None, key, [], shares=shares, matrices=matrices)

    def request(self, minibatch: MiniBatch) -> None:
        """Nothing: all is here."""

    def forward_backward(self, minibatch: MiniBatch) -> float:
        """Put the gradient of the whole batch into the parameters'; returns its loss on rank 0, 0 elsewhere.

        Both are added up in the order of shares. Collective.
        """
        assert isinstance(minibatch, ReceivedMiniBatch), "what `plan` gives"
        if self.ctx.ranks == 1:
            # One rank's gradients add up in order by themselves.
            each = zip(minibatch.shares, minibatch.matrices, strict=True)
            return sum((self.train(share, matrix, minibatch.dropout) for share, matrix in each), 0.0)
        gradients, losses, found = self.ctx.parameters.gradients, np.zeros(int(self.shares_by_rank.max())), []
        for number, (share, matrix) in enumerate(zip(minibatch.shares, minibatch.matrices, strict=True)):
            losses[number] = self.train(share, matrix, minibatch.dropout)
            found.append(gradients.clone())
            gradients.zero_()
        with self.ctx.phases("reduce"):
            sum_in_order(self.ctx.communicator, torch.stack(found), self.shares_by_rank, gradients)
            table = self.ctx.communicator.all_gather_rows(losses)
        if self.ctx.rank:
            return 0.0
        return sum((float(loss) for row, count in zip(table, self.shares_by_rank, strict=True) for loss in row[:count]))

    def dry_run(self, batch: np.ndarray | None) -> None:
        """Train the first mini-batch, and forget it."""
        self.ctx.parameters.gradients.zero_()
        self.forward_backward(self.plan(batch, 0, 0))
        self.ctx.parameters.gradients.zero_()

    def timed(self, batch: np.ndarray | None) -> tuple[float, float, float]:
        """As `dry_run`; no seconds to prepare, those in which shares arrive, and those that it takes to compute."""
        self.ctx.parameters.gradients.zero_()
        minibatch = self.plan(batch, 0, 0)
        begin = time.perf_counter()
        self.forward_backward(minibatch)
        seconds = time.perf_counter() - begin
        self.ctx.parameters.gradients.zero_()
        return 0.0, self.shipping.seconds, seconds

    def train(self, share: PreparedShare, matrix: Tensor, key: DrawKey | None) -> float:
        """Forward and backward of one share; its loss. `key` is that of dropout masks. Local."""
        device = self.ctx.device
        with self.ctx.phases("compute"):
            outputs = self._outputs(share, matrix, key)
            labels = torch.from_numpy(share.labels).to(device)
            weight: float | Tensor
            if isinstance(share.weights, float):
                weight = share.weights
            else:
                weight = torch.from_numpy(share.weights).to(device, outputs.dtype)
            loss = self.ctx.task.loss(outputs, labels, weight)
            loss.backward()
        return float(loss.detach())

    def _outputs(self, share: PreparedShare, matrix: Tensor, key: DrawKey | None) -> Tensor:
        """The model's outputs for the roots of `share`."""
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
        """The rows of the first layer's sources, read as a rank that has fetched them would."""
        device = self.ctx.device
        if share.form == SPARSE_ROWS:
            indptr, indices, values = (torch.from_numpy(each).to(device) for each in share.sparse)
            return SparseMatrix(Edges(indptr, indices, self.shipping.width), values)
        if share.form == ROWS_IN_PLACE and on_host(device):
            addresses = matrix.data_ptr() + matrix.stride(0) * matrix.element_size() * torch.arange(len(matrix))
            return ScatteredRows(addresses, self.shipping.width, (matrix,))
        return matrix.to(device, non_blocking=True)
