"""One exchange of rows between ranks: packed, then moving, then arrived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from leapmpi.comm.communicator import Communicator


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
    _end: Callable[[], None] | None = field(default=None, init=False)

    def begin(self) -> None:
        """Start moving the rows. Collective."""
        assert self.sent is not None, "rows are sent once"
        self._end = self.communicator.start_exchange(*self.sent, *self.arriving, self.kind)

    def wait(self) -> None:
        """Wait until all rows have arrived; a second call does nothing. Collective."""
        if self._end:
            end, self._end = self._end, None
            end()
            self.sent = None

    def unpack(self) -> Any:
        """The result, once the rows have arrived. Local."""
        return self.result_of(self.arriving[0])

    def complete(self) -> Any:
        """Move the rows and unpack them. Collective."""
        self.begin()
        self.wait()
        return self.unpack()
