"""Sums of raw rows on their way: shares go to the ranks that named their destinations, and are added up there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from leapmpi.comm.communicator import Communicator, Exchange
from leapmpi.features.row_exchange import RowExchange
from leapmpi.nn.rows import Rows
from leapmpi.nn.tensors import operations


@dataclass
class LayerSums:
    """What a layer reads of its destinations: `sums` float[n_dst, in], and their `own` rows where it reads these.

    places: by micro-batch, int64[its destinations], where they stand; None for all in order.
    """

    sums: Tensor
    own: Rows | None
    places: list[np.ndarray | None]

    def of(self, number: int) -> tuple[Tensor, Rows | None]:
        """The two of micro-batch `number`."""
        place = self.places[number]
        if place is None:
            return self.sums, self.own
        rows = torch.from_numpy(place).to(self.sums.device)
        return self.sums.index_select(0, rows), None if self.own is None else self.own[rows]


@dataclass
class SumExchange:
    """An exchange of shares, as a mini-batch takes it: `begin`, `wait`, `unpack`, in this order, in one channel.

    answers: float[k, in], shares for other ranks in their order, answer_counts int64[ranks] of them for each. local: a
    function that computes the shares float[n_dst, in] of this rank's rows. positions: int64[pairs], the destinations of
    the shares that arrive, pair_counts int64[ranks] from each rank. own: the exchange of the destinations' own rows.
    deliver: takes the sums and, if there are any, the own rows.
    """

    communicator: Communicator
    answers: Tensor
    answer_counts: np.ndarray
    local: Callable[[], Tensor]
    positions: np.ndarray
    pair_counts: np.ndarray
    own: RowExchange | None
    deliver: Callable[[Tensor, Rows | None], None]
    _sums: Tensor | None = field(default=None, init=False)
    _end: Callable[[], None] | None = field(default=None, init=False)

    def begin(self) -> None:
        """Start moving shares and own rows; local shares are computed meanwhile. Collective."""
        self._arrived = self.answers.new_empty((len(self.positions), self.answers.shape[1]))
        exchanges: list[Exchange] = [(self.answers, self.answer_counts, self._arrived, self.pair_counts, "features")]
        # Own rows travel last. Begun later, in `wait`, they would need all ranks to wait at the same time.
        if self.own:
            exchanges.append(self.own.exchange)
        self._end = self.communicator.start_exchanges(exchanges)
        self._sums = self.local()

    def wait(self) -> None:
        """Wait until all has arrived. A second call does nothing. Collective."""
        if self._end:
            end, self._end = self._end, None
            end()
            if self.own:
                self.own.sent = None

    def unpack(self) -> None:
        """Add up the shares, those that arrived in the order of ranks, and deliver. Local."""
        assert self._sums is not None, "`begin` has computed the local ones"
        positions = torch.from_numpy(self.positions).to(self._sums.device)
        operations(self._sums.device).add_rows(self._sums, positions, self._arrived)
        self.deliver(self._sums, self.own.unpack() if self.own else None)
