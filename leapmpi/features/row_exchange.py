"""Exchange of rows between ranks: packed, then moving, then arrived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from leapmpi.comm.communicator import Communicator, Exchange
from leapmpi.features.shards.row_request import RowRequest

Requested = tuple[RowRequest, np.ndarray, np.ndarray] | None
"""A rank's request; local ids int64[k] that others requested, by rank, and their counts int64[ranks]."""


@dataclass
class RowExchange:
    """The rows that others requested from this rank, and memory for those that this rank requested.

    Call `begin`, `wait` and `unpack` in this order, in one channel (leapmpi/system/channels.py), which moves one
    exchange at a time. Bytes are counted under `kind`; `result_of` makes the result of the rows that have arrived.
    """

    communicator: Communicator
    kind: str
    sent: tuple[np.ndarray | torch.Tensor, np.ndarray] | None
    """The packed rows, sorted by the rank they go to, and int64[ranks]: how many go to each."""
    arriving: tuple[np.ndarray | torch.Tensor, np.ndarray]
    """Memory for the requested rows, and int64[ranks]: how many come from each rank."""
    result_of: Callable[[Any], Any]
    requested: Requested = None
    pack: Callable[[], object] | None = None
    """Writes the rows to send when they leave, where they change until then."""
    _end: Callable[[], None] | None = field(default=None, init=False)

    @property
    def exchange(self) -> Exchange:
        """Arguments of the exchange of the rows, packed now where they change."""
        assert self.sent is not None, "rows are sent once"
        if self.pack is not None:
            self.pack()
        return (*self.sent, *self.arriving, self.kind)

    def begin(self) -> None:
        """Start moving the rows. Collective."""
        self._end = self.communicator.start_exchange(*self.exchange)

    def wait(self) -> None:
        """Wait until all rows have arrived; a second call does nothing. Collective."""
        if self._end:
            end, self._end = self._end, None
            end()
            self.release()

    def release(self) -> None:
        """Give back the room of the rows that were sent. Local."""
        self.sent = self.pack = None

    def unpack(self) -> Any:
        """Return the result, once the rows have arrived. Local."""
        return self.result_of(self.arriving[0])

    def move(self) -> None:
        """Move the rows. Collective."""
        self.begin()
        self.wait()

    def complete(self) -> Any:
        """Move the rows and unpack them. Collective."""
        self.move()
        return self.unpack()
