"""One exchange of rows between ranks, forward and backward.

Each rank computes the rows that others need and sends them first. It computes its own rows while messages travel, and
combines both. Gradients return along the same routes; own rows are backpropagated while they travel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from leapmpi.exchange.context import Packing, RankContext
from leapmpi.exchange.packed_rows import fits, start_packed
from leapmpi.exchange.read_columns import EVERY, Kept, without_zeros
from leapmpi.nn.gradient import pass_back
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.share_forms import Combination, PartialStep
from leapmpi.nn.tensors import operations


@dataclass(frozen=True, eq=False)
class Route:
    """The rows that ranks exchange for one matrix of `total` rows on this rank.

    local_positions: int64[k], the matrix row of each own row; None for one each, in order. received_positions:
    int64[m], the matrix row of each received row, by rank. received_counts, sent_counts: int64[ranks].
    """

    total: int
    local_positions: np.ndarray | None
    received_positions: np.ndarray
    received_counts: np.ndarray
    sent_counts: np.ndarray

    @property
    def local_count(self) -> int:
        """The number of own rows."""
        return self.total if self.local_positions is None else len(self.local_positions)


@dataclass(frozen=True, eq=False)
class RowRoutes(Route):
    """A route of rows of the layer below, with int64 numbers of own rows that are read here and that are sent.

    received_vertices, sent_vertices: int64, the vertices of the rows that are received and sent.
    """

    local_rows: np.ndarray
    sent_rows: np.ndarray
    received_vertices: np.ndarray
    sent_vertices: np.ndarray


def by_rank(rows: Sequence[np.ndarray], counts: Sequence[np.ndarray]) -> np.ndarray:
    """Merge arrays by rank; each of `rows` is ordered by rank, with `counts` (int64[ranks] each) of each rank.

    For each rank, those of the first array come first.
    """
    ranks = np.concatenate([np.repeat(np.arange(len(each)), each) for each in counts])
    return np.concatenate(rows)[np.argsort(ranks, kind="stable")]


ROWS = "activations"
"""The kind under which rows of layers are counted."""


class Transfer:
    """Rows of `width` numbers sent to other ranks and received from them; gradients take the opposite way.

    kind: the kind under which bytes are counted. zeros: whether rows, and whether gradients, hold many zeros, the same
    on all ranks. Without them, only columns that nobody reads are left out. hides: whether the gradient of a zero is
    not read.
    """

    def __init__(
        self,
        ctx: RankContext,
        sent_counts: np.ndarray,
        received_counts: np.ndarray,
        width: int,
        kind: str = ROWS,
        zeros: tuple[bool, bool] = (True, True),
        hides: bool = False,
    ) -> None:
        self.ctx, self.sent_counts, self.received_counts = ctx, sent_counts, received_counts
        self.width, self.kind, self.received = width, kind, int(received_counts.sum())
        self.zeros, self.hides = zeros, hides
        self._shortens = ctx.packing == Packing.SHORT_EXPONENTS

    def start(self, rows: Tensor, kept: Kept = EVERY) -> Callable[[], Tensor]:
        """Send `rows` (float[sent, width], by rank); the result waits for those that arrive. Collective.

        Where rows are packed, numbers that are not `kept` arrive as zeros.
        """
        return self._start(rows, self.sent_counts, self.received_counts, kept, self.zeros[0])

    def start_back(self, gradient: Tensor, kept: Kept = EVERY) -> Callable[[], Tensor]:
        """Send the `gradient` of what arrived; the result waits for that of what was sent. Collective."""
        return self._start(gradient, self.received_counts, self.sent_counts, kept[::-1], self.zeros[1])

    def kept_back(self, kept: Kept, sent: Tensor, received: Tensor) -> Kept:
        """Return which numbers of the gradients are read, once rows `sent` were sent and `received` has arrived."""
        return without_zeros(kept, sent, received) if self.hides and self._packs(sent) else kept

    def count(self, forward: int = 1) -> None:
        """Count what is sent: rows, `forward` times, and the gradient. Local: nothing is sent."""
        communicator, row = self.ctx.communicator, self.width * self.ctx.parameters.values.element_size()
        communicator.count(self.kind, forward * self.sent_counts, row)
        communicator.count(self.kind, self.received_counts, row)

    def _start(
        self, rows: Tensor, counts: np.ndarray, arriving_counts: np.ndarray, kept: Kept, zeros: bool
    ) -> Callable[[], Tensor]:
        assert rows.shape[1] == self.width, "forecasts count this width"
        # Without short exponents, packing pays only where zeros or dropped columns are left out.
        saves = zeros or kept[0] is not None or (self._shortens and rows.dtype == torch.float32)
        start = self._start_packed if saves and self._packs(rows) else self._start_whole
        with self.ctx.phases("exchange"):
            end = start(rows, counts, arriving_counts, kept)

        def finish() -> Tensor:
            with self.ctx.phases("exchange"):
                return end()

        return finish

    def _packs(self, rows: Tensor) -> bool:
        """Return whether `rows` can travel packed: the same on all ranks."""
        packs = self.ctx.packing != Packing.NONE and self.kind == ROWS and on_host(rows.device)
        return packs and fits(self.width, rows.element_size())

    def _start_whole(
        self, rows: Tensor, counts: np.ndarray, arriving_counts: np.ndarray, kept: Kept
    ) -> Callable[[], Tensor]:
        arriving = rows.new_empty((int(arriving_counts.sum()), self.width))
        end = self.ctx.communicator.start_exchange(rows, counts, arriving, arriving_counts, self.kind)

        def finish() -> Tensor:
            end()
            return arriving

        return finish

    def _start_packed(
        self, rows: Tensor, counts: np.ndarray, arriving_counts: np.ndarray, kept: Kept
    ) -> Callable[[], Tensor]:
        given = rows.contiguous().numpy(), counts, arriving_counts, kept, self._shortens
        end = start_packed(self.ctx.communicator, *given)
        return lambda: torch.from_numpy(end())


class ComputedRows:
    """Rows that this rank computes: `rows` holds `local` own ones, then those that other ranks need.

    Call `local` once, after `sent` was read; then, in training, `backward_local` before `backward_sent`.
    """

    def __init__(self, rows: Tensor, local: int) -> None:
        self._rows, self._local = rows, local
        self.sent = rows[local:]

    def local(self) -> Tensor:
        """Compute the own rows, float[own rows, width]."""
        return self._rows[: self._local]

    def backward_local(self, gradient: Tensor) -> None:
        """Backpropagate the gradient of own rows; the backward pass of a single computation runs once, later."""
        self._gradient = gradient

    def backward_sent(self, gradient: Tensor) -> None:
        """Backpropagate the gradient of the rows that were sent."""
        pass_back(self._rows, torch.cat([self._gradient, gradient]))


class ComputedApart(ComputedRows):
    """The same where own rows are computed while others travel; each half as `Layer.partial_step` does."""

    def __init__(self, sent: PartialStep, local: Callable[[], PartialStep]) -> None:
        self.sent, self._backward_sent = sent
        self._compute = local

    def local(self) -> Tensor:
        rows, self._backward_local = self._compute()
        return rows

    def backward_local(self, gradient: Tensor) -> None:
        self._backward_local(gradient)

    def backward_sent(self, gradient: Tensor) -> None:
        self._backward_sent(gradient)


class RowsInPlace(ComputedRows):
    """Rows of a matrix `rows`: the first `local` are own ones, and those of `sent_rows` (int64[m]) are sent.

    A row may be both, and be sent to several ranks. sent_counts: int64[ranks], rows for each rank in turn. Where all
    rows are own ones, their gradient is changed in place.
    """

    def __init__(self, rows: Tensor, local: int, sent_rows: Tensor, sent_counts: np.ndarray) -> None:
        self._rows, self._local, self._sent_rows, self._sent_counts = rows, local, sent_rows, sent_counts
        self.sent = rows.detach().index_select(0, sent_rows)

    def backward_sent(self, gradient: Tensor) -> None:
        others = len(self._rows) - self._local
        whole = F.pad(self._gradient, (0, 0, 0, others)) if others else self._gradient
        add_by_rank(whole, self._sent_rows, self._sent_counts, gradient)
        pass_back(self._rows, whole)


class PickedRows(ComputedRows):
    """Own and sent rows picked out of a matrix `rows`; a row may be both, and be sent to several ranks.

    local_rows int64[k], sent_rows int64[m], by rank as `sent_counts` (int64[ranks]) says. `backward` takes the gradient
    of the matrix.
    """

    def __init__(
        self,
        rows: Tensor,
        local_rows: Tensor,
        sent_rows: Tensor,
        sent_counts: np.ndarray,
        backward: Callable[[Tensor], None],
    ) -> None:
        self._rows = rows.detach()
        self._local_rows, self._sent_rows, self._sent_counts = local_rows, sent_rows, sent_counts
        self._backward = backward
        self.sent = self._rows.index_select(0, sent_rows)

    def local(self) -> Tensor:
        return self._rows.index_select(0, self._local_rows)

    def backward_local(self, gradient: Tensor) -> None:
        self._gradient = torch.zeros_like(self._rows)
        self._gradient[self._local_rows] = gradient

    def backward_sent(self, gradient: Tensor) -> None:
        add_by_rank(self._gradient, self._sent_rows, self._sent_counts, gradient)
        self._backward(self._gradient)


def add_by_rank(target: Tensor, rows: Tensor, counts: np.ndarray, values: Tensor) -> None:
    """Add `values` to `rows` (int64[k], by rank as `counts` says) of `target`, rank by rank.

    The sum of a row that occurs for several ranks then has the same order on any device.
    """
    sizes = counts.tolist()
    for places, part in zip(rows.split(sizes), values.split(sizes), strict=True):
        operations(target.device).add_rows(target, places, part)


class Placed(Combination):
    """Rows that each fill one row of the matrix."""

    def __init__(self, local: Tensor, positions: Tensor | None, total: int) -> None:
        self._local = positions
        if positions is None:
            self.rows = local.clone()
        else:
            self.rows = local.new_empty((total, local.shape[1]))
            self.rows[positions] = local

    def add(self, arrived: Tensor, positions: Tensor) -> None:
        self._arrived = positions
        self.rows[positions] = arrived

    def local_gradient(self, gradient: Tensor) -> Tensor:
        return gradient if self._local is None else gradient.index_select(0, self._local)

    def arrived_gradient(self, gradient: Tensor) -> Tensor:
        return gradient.index_select(0, self._arrived)


class Appended(Combination):
    """Own rows, then those that arrived, each in its order."""

    def __init__(self, local: Tensor, positions: Tensor | None, total: int) -> None:
        self._local = local

    def add(self, arrived: Tensor, positions: Tensor) -> None:
        self.rows = torch.cat([self._local, arrived])
        self._count = len(self._local)
        del self._local

    def local_gradient(self, gradient: Tensor) -> Tensor:
        return gradient[: self._count]

    def arrived_gradient(self, gradient: Tensor) -> Tensor:
        return gradient[self._count :]


Combine = Callable[[Tensor, Tensor | None, int], Combination]
"""A constructor of a Combination of own rows."""


class Stage:
    """The exchange of one matrix of `width` columns along `route`; rows are combined by `combination`."""

    def __init__(
        self,
        ctx: RankContext,
        route: Route,
        width: int,
        combination: Combine = Placed,
        zeros: tuple[bool, bool] = (True, True),
        hides: bool = False,
    ) -> None:
        self.ctx, self.route, self.combination = ctx, route, combination
        self.transfer = Transfer(ctx, route.sent_counts, route.received_counts, width, zeros=zeros, hides=hides)
        self.received_positions = torch.from_numpy(route.received_positions).to(ctx.device)
        local = route.local_positions
        self.local_positions = None if local is None else torch.from_numpy(local).to(ctx.device)

    def forward(self, computed: ComputedRows, kept: Kept = EVERY) -> Tensor:
        """Exchange `computed` rows; return a leaf, float[total, width], of own and received rows. Collective.

        Where rows are packed, numbers that are not `kept` may be anything: nothing depends on them.
        """
        # Own rows are computed while messages travel: sends start first on every rank.
        finish = self.transfer.start(computed.sent.detach(), kept)
        with self.ctx.phases("compute"):
            combined = self.combination(computed.local().detach(), self.local_positions, self.route.total)
        arrived = finish()
        if torch.is_grad_enabled():
            with self.ctx.phases("compute"):
                self._kept = self.transfer.kept_back(kept, computed.sent, arrived)
        # Sent rows are not read again; in a full batch they would be held until the backward pass.
        del computed.sent
        with self.ctx.phases("compute"):
            combined.add(arrived, self.received_positions)
        if torch.is_grad_enabled():
            self._computed, self._combined = computed, combined
        return combined.rows.requires_grad_(torch.is_grad_enabled())

    def backward(self) -> None:
        """Return the gradient of the matrix to the ranks that computed its rows. Collective."""
        # Gradients of received rows leave first, and own rows are backpropagated while they travel.
        computed, combined, kept = self._computed, self._combined, self._kept
        del self._computed, self._combined, self._kept
        with self.ctx.phases("compute"):
            rows = combined.rows
            gradient = torch.zeros_like(rows) if rows.grad is None else rows.grad
            sent = combined.arrived_gradient(gradient)
        finish = self.transfer.start_back(sent, kept)
        with self.ctx.phases("compute"):
            computed.backward_local(combined.local_gradient(gradient))
        returned = finish()
        with self.ctx.phases("compute"):
            computed.backward_sent(returned)
