"""Which rows are requested and where they are, and the exchange of rows: packed, then moving, then arrived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from leapmpi.comm.communicator import Communicator, Exchange
from leapmpi.plan.homes import home_of


class RowRequest:
    """Distinct vertex ids grouped by where their rows are: on this rank, in the cache, or on which other rank.

    `ids` int64[k]; `rank_offsets` int64[ranks + 1]; `slots` int[k]: the slot of each id in the cache, negative where
    there is none.

    Each of the three groups has its positions in `ids`. Local rows have `local_ids`; remote rows have `remote_ids`,
    sorted by home rank, and `remote_counts` int64[ranks]; cached rows have `cached_slots`.
    """

    def __init__(self, ids: np.ndarray, rank_offsets: np.ndarray, rank: int, slots: np.ndarray | None = None) -> None:
        ranks = len(rank_offsets) - 1

        # Sort stably by home rank; cached rows come last, as if at home on one rank more.
        if ranks == 1 and slots is None:
            order, counts = np.arange(len(ids)), np.array([len(ids), 0])
        else:
            home = home_of(ids, rank_offsets).astype(np.uint16)
            if slots is not None:
                home[slots >= 0] = ranks
            order = np.argsort(home, kind="stable")
            counts = np.bincount(home, minlength=ranks + 1).astype(np.int64)
        begin = int(counts[:rank].sum())
        end = begin + int(counts[rank])
        cached = len(ids) - int(counts[ranks])

        # Local rows lie at [begin, end) of that order, cached ones from `cached` on; the others are remote.
        self.ids = ids
        self.local_positions = order[begin:end]
        self.local_ids = ids[self.local_positions]
        self.remote_positions = np.concatenate((order[:begin], order[end:cached]))
        self.remote_ids = ids[self.remote_positions]
        self.cached_positions = order[cached:]
        self.cached_slots = slots[self.cached_positions] if slots is not None else self.cached_positions
        counts[rank] = 0
        self.remote_counts = counts[:ranks]

    @property
    def read_counts(self) -> dict[str, int]:
        """How many rows are read of each of the three groups, as they are counted."""
        return {"local": len(self.local_ids), "remote": len(self.remote_ids), "cached": len(self.cached_slots)}


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
    requested: tuple[RowRequest, np.ndarray, np.ndarray] | None = None
    """What this rank requested; int64[k], the local ids that others requested, by rank, and int64[ranks]: how many."""
    _end: Callable[[], None] | None = field(default=None, init=False)

    @property
    def exchange(self) -> Exchange:
        """What moves the rows."""
        assert self.sent is not None, "rows are sent once"
        return (*self.sent, *self.arriving, self.kind)

    def begin(self) -> None:
        """Start moving the rows. Collective."""
        self._end = self.communicator.start_exchange(*self.exchange)

    def wait(self) -> None:
        """Wait until all rows have arrived; a second call does nothing. Collective."""
        if self._end:
            end, self._end = self._end, None
            end()
            self.sent = None

    def unpack(self) -> Any:
        """The result, once the rows have arrived. Local."""
        return self.result_of(self.arriving[0])

    def move(self) -> None:
        """Move the rows. Collective."""
        self.begin()
        self.wait()

    def complete(self) -> Any:
        """Move the rows and unpack them. Collective."""
        self.move()
        return self.unpack()
