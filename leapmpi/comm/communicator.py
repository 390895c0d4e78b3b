"""The only door through which data cross ranks.

Payload sent to other ranks is checked, counted by kind, and carried: by MPI (mpi_communicator.py), or, in forecasts,
within one process. Sums are taken in rank order, so they do not depend on timing. Every method that exchanges data with
other ranks is collective.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.comm import mpi_buffers
from leapmpi.comm.byte_counters import Counters
from leapmpi.comm.collectives import to_json
from leapmpi.comm.id_codec import IdCodec

if TYPE_CHECKING:
    from leapmpi.comm.mpi_buffers import Array

FEW = 16
"""Up to so many ranks, each sends a message to every other one, whatever it holds, and counts take 8 bytes."""

LONG = 0xFFFF
"""Among more ranks a count takes 2 bytes, and 8 more from this one on."""

Exchange = tuple["Array", np.ndarray, "Array", np.ndarray, str]
"""Arguments of `Communicator.exchange`: sent rows and counts by rank, received rows and counts, and the kind."""


class CommunicationError(RuntimeError):
    """The two sides of an exchange disagree on type or size: a defect of leapmpi, caught before data are used."""


class Communicator(ABC):
    """Exchanges between ranks. Public methods check and count what they are given, others carry it."""

    rank: int
    size: int

    carries = True
    """Whether rows and values reach other ranks; else they have sizes only."""

    @property
    @abstractmethod
    def byte_counters(self) -> Counters:
        """Bytes sent and rows read through the calling thread's channel."""

    # -- small things ----------------------------------------------------------------------------------------------

    def all_gather_objects(self, value: Any) -> list[Any]:
        """Gather small values of all ranks (JSON content), by rank. For start-up, not for the hot path. Collective."""
        self.byte_counters.add_to_each("control", len(to_json(value)))
        return self._gathered_objects(value)

    def all_gather_rows(self, row: np.ndarray, kind: str = "control") -> np.ndarray:
        """Gather equal-length rows of all ranks as (ranks, *row.shape), by rank. Collective."""
        mpi_buffers.check(row, "gathered row")
        self.byte_counters.add_to_each(kind, row.nbytes)
        return self._gathered_rows(row, kind)

    def all_gather_pieces(self, piece: np.ndarray, counts: np.ndarray, kind: str) -> np.ndarray:
        """Concatenate the rows `piece` of all ranks in order; `counts`, int64[size], are known to all. Collective."""
        received = np.empty((int(counts.sum()), *piece.shape[1:]), piece.dtype)
        copies = np.concatenate([piece] * self.size)
        self.exchange(copies, np.full(self.size, len(piece)), received, counts, kind)
        return received

    def start_all_reduce_maximum(self, value: int) -> Callable[[], int]:
        """Begin to find the largest `value` (int64) of all ranks. Collective.

        It travels while other messages do. The result waits for it; all ranks must call that too. As many messages
        are counted as all ranks need to learn of all: they know twice as many after each.
        """
        distance = 1
        while distance < self.size:
            self.byte_counters.add_to_rank("control", np.int64().nbytes, (self.rank + distance) % self.size)
            distance *= 2
        if self.size == 1:
            return lambda: value
        return self._started_maximum(value)

    def broadcast(
        self, array: np.ndarray | None, kind: str, *, expected: int | None = None, counted: bool = True
    ) -> np.ndarray:
        """Rank 0's one-dimensional int64 array on every rank; others pass None. Collective.

        An array of up to `expected` numbers, 1 MiB at most, takes one message; by default one as long as the array
        before it of its kind and channel. All ranks expect the same. Unless `counted` here, bytes are counted by the
        caller. Raises ValueError for another kind of array.
        """
        if self.rank == 0:
            assert array is not None, "rank 0 has the array"
            mpi_buffers.check(array, "broadcast")
            if array.ndim != 1 or array.dtype != np.int64:
                raise ValueError(f"broadcast: needs int64[n], not {array.dtype} of shape {array.shape}")
            if counted:
                self.byte_counters.add_to_each(kind, array.nbytes)
        return self._broadcast(array, kind, expected)

    def scatter(self, rows: np.ndarray | None, kind: str, *, expected: int, counted: bool = True) -> np.ndarray:
        """Send row r of rank 0's array int64[size, n] to rank r, which gets int64[n]; others pass None. Collective.

        A row of up to `expected` numbers, a bound that all ranks share, takes one message, unless it is very long.
        Unless `counted` here, bytes are counted by the caller. Raises ValueError for another kind of array.
        """
        if self.rank == 0:
            assert rows is not None, "rank 0 has the rows"
            mpi_buffers.check(rows, "scattered rows")
            if rows.ndim != 2 or len(rows) != self.size or rows.dtype != np.int64:
                raise ValueError(f"scatter: needs int64[{self.size}, n], not {rows.dtype} of shape {rows.shape}")
            if counted:
                self.byte_counters.add_to_each(kind, rows[0].nbytes)
        return self._scattered(rows, expected)

    # -- exchanges -------------------------------------------------------------------------------------------------

    def exchange(
        self, send: Array, send_counts: np.ndarray, receive: Array, receive_counts: np.ndarray, kind: str
    ) -> None:
        """Send rows `send` (in order of destination rank) and fill `receive` (in order of source rank). Collective.

        Both arrays are (rows,) or (rows, width) of one type; counts are rows per rank, int64[size]. The rows of a rank
        for itself are copied in memory. Raises CommunicationError when a peer sends another type or number of bytes
        than expected.
        """
        self.start_exchange(send, send_counts, receive, receive_counts, kind)()

    def start_exchange(
        self, send: Array, send_counts: np.ndarray, receive: Array, receive_counts: np.ndarray, kind: str
    ) -> Callable[[], None]:
        """Begin what `exchange` does; the result waits for its end, and all ranks must call that too. Collective.

        Until then neither array may be touched, nor another exchange begun in this channel.
        """
        return self.start_exchanges([(send, send_counts, receive, receive_counts, kind)])

    def start_exchanges(self, exchanges: Sequence[Exchange]) -> Callable[[], None]:
        """Start several exchanges, as `start_exchange`, that travel one after the other. Collective.

        A rank that waits for their end needs nothing more of the others, whatever these do first.
        """
        for send, send_counts, receive, receive_counts, _ in exchanges:
            mpi_buffers.check(send, "sent rows")
            mpi_buffers.check(receive, "received rows")
            if mpi_buffers.type_code(send) != mpi_buffers.type_code(receive) or send.shape[1:] != receive.shape[1:]:
                raise CommunicationError("sent and received rows differ in type or width")
            if send_counts.sum() != send.shape[0] or receive_counts.sum() != receive.shape[0]:
                raise CommunicationError("counts do not add up to the rows given")
        end = self._started(exchanges)
        for send, send_counts, _, _, kind in exchanges:
            self.count(kind, send_counts, math.prod(send.shape[1:]) * send.itemsize)
        return end

    @abstractmethod
    def start_pieces(
        self, pieces: Sequence[Sequence[np.ndarray]], rooms: Sequence[Sequence[int]], kind: str
    ) -> Callable[[], list[list[np.ndarray]]]:
        """Begin to send pieces whose sizes the receivers do not know; the result waits for those of others. Collective.

        pieces: for each rank, those for it, uint8[k] each, in order, none empty; rooms: for each rank, most bytes of
        each piece that it sends, at most a fragment. Both ranks know how many pieces there are. Returns what arrived,
        by rank. Until the end no piece may be touched, nor another exchange begun in this channel.
        """

    def exchange_counts(self, counts: np.ndarray) -> np.ndarray:
        """Send row r of `counts` (int64[size] or [size, k]) to rank r; returns what the ranks sent. Collective."""
        # Among many ranks a negative count would pass for the mark of a long one, and its receiver would wait.
        assert not counts.size or counts.min() >= 0, "counts are not negative"
        self._count_counts(counts)
        return self._exchanged_counts(counts)

    def exchange_ids(self, ids: np.ndarray, counts: np.ndarray, ranges: IdCodec) -> tuple[np.ndarray, np.ndarray]:
        """Send int64 `ids` (in order of destination), returns what others sent and their counts. Collective.

        Ids travel as offsets in `ranges`, which all ranks give alike and which hold the ids.
        """
        self._count_counts(counts)
        self.count("ids", counts, ranges.id_bytes)
        return self._exchanged_ids(ids, counts, ranges)

    def spread_ids(self, ids: np.ndarray, ranges: IdCodec) -> list[np.ndarray]:
        """Send int64 `ids` to all other ranks; returns what each rank sent, its own included. Collective."""
        others = np.arange(self.size) != self.rank
        self._count_counts(others * len(ids))
        self.byte_counters.add_to_each("ids", len(ids) * ranges.id_bytes)
        found = self._spread_ids(ids, others * len(ids), ranges)
        found[self.rank] = ids
        return found

    def ring_hop(self, state: Array, kinds: Sequence[tuple[str, int]], distance: int = 1) -> None:
        """Pass one-dimensional `state` to rank - `distance` and replace it by that of rank + `distance`. Collective.

        `kinds` lists the (kind, bytes) that make up the state, for the byte counters. Never blocks on buffer sizes:
        the receive is posted before the send.
        """
        if distance % self.size == 0:
            return
        to = (self.rank - distance) % self.size
        self._hop(state, to, (self.rank + distance) % self.size)
        for kind, count in kinds:
            self.byte_counters.add_to_rank(kind, count, to)

    def all_reduce(self, flat: Array, kind: str = "gradients") -> None:
        """Replace one-dimensional `flat` by its sum over ranks, added in rank order. Collective.

        Each rank adds one slice of all ranks' arrays and sends the sum to all: 2 (R-1)/R of the array leave a rank.
        """
        if self.size == 1:
            return
        bounds = np.arange(self.size + 1, dtype=np.int64) * flat.shape[0] // self.size
        widths = np.diff(bounds)
        self.count(kind, widths, flat.itemsize)
        self.count(kind, np.full(self.size, widths[self.rank]), flat.itemsize)
        self._reduce(flat, widths, kind)

    def count(self, kind: str, counts: np.ndarray, width: int) -> None:
        """Count rows of `width` bytes, `counts` (int64[size]) of them sent to each rank. Local: nothing is sent."""
        payload = (int(counts.sum()) - int(counts[self.rank])) * width
        self.byte_counters.add_to_ranks(kind, payload, counts * width)

    def _count_counts(self, counts: np.ndarray) -> None:
        """Count `counts` (int64[size] or [size, k]) sent to the ranks. Local."""
        numbers = counts.size // self.size
        if self.size <= FEW:
            self.byte_counters.add_to_each("control", 8 * numbers)
            return
        self.byte_counters.add_to_each("control", 2 * numbers)
        self.count("control", long_rows(counts), 8 * numbers)

    # -- what carries them -----------------------------------------------------------------------------------------

    @abstractmethod
    def barrier(self) -> None:
        """Wait until all ranks are here. Collective."""

    @abstractmethod
    def _gathered_objects(self, value: Any) -> list[Any]: ...

    @abstractmethod
    def _gathered_rows(self, row: np.ndarray, kind: str) -> np.ndarray: ...

    @abstractmethod
    def _started_maximum(self, value: int) -> Callable[[], int]: ...

    @abstractmethod
    def _broadcast(self, array: np.ndarray | None, kind: str, expected: int | None) -> np.ndarray: ...

    @abstractmethod
    def _scattered(self, rows: np.ndarray | None, expected: int) -> np.ndarray: ...

    @abstractmethod
    def _started(self, exchanges: Sequence[Exchange]) -> Callable[[], None]: ...

    @abstractmethod
    def _exchanged_counts(self, counts: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _exchanged_ids(self, ids: np.ndarray, counts: np.ndarray, ranges: IdCodec) -> tuple[np.ndarray, np.ndarray]: ...

    def _spread_ids(self, ids: np.ndarray, counts: np.ndarray, ranges: IdCodec) -> list[np.ndarray]:
        arrived, sizes = self._exchanged_ids(np.tile(ids, self.size - 1), counts, ranges)
        return np.split(arrived, np.cumsum(sizes)[:-1])

    @abstractmethod
    def _hop(self, state: Array, to: int, origin: int) -> None:
        """Pass `state` to rank `to`; replace it by that of rank `origin`."""

    @abstractmethod
    def _reduce(self, flat: Array, widths: np.ndarray, kind: str) -> None:
        """Replace `flat`, whose slice r has widths[r] numbers, by its sum over ranks."""


def long_rows(counts: np.ndarray) -> np.ndarray:
    """Return int64[size]: 1 for the ranks whose `counts` (int64[size] or [size, k]) do not fit into 2 bytes, else 0."""
    return (np.max(counts.reshape(len(counts), -1), axis=1) >= LONG).astype(np.int64)
