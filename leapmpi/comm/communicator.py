"""The only door through which data cross ranks.

Arrays (numpy, torch on the host, or on a GPU) go out as checked bytes; payload sent to other ranks is counted by kind.
Sums are taken in rank order, so they do not depend on timing. Every method that talks to other ranks is collective.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from leapmpi.comm import mpi_buffers
from leapmpi.comm.byte_counters import ByteCounters, Counters, PartCounters
from leapmpi.comm.collectives import all_gather_rows, all_gather_values, to_json
from leapmpi.comm.flow_control import Message, MessageQueue
from leapmpi.comm.id_codec import IdCodec
from leapmpi.comm.packets import Packets
from leapmpi.comm.staging import StagingBuffers
from leapmpi.comm.transport import CommunicationError, Transport
from leapmpi.system import channels

if TYPE_CHECKING:
    import torch
    from mpi4py import MPI

    from leapmpi.comm.mpi_buffers import Array

Exchange = tuple["Array", np.ndarray, "Array", np.ndarray, str]
"""Arguments of `Communicator.exchange`: sent rows and counts by rank, received rows and counts, and the kind."""

_LANES = 8
"""Ranks from which `receive` gets rows at once: their windows together are no more than a switch can queue."""

_LEAST_ROOM, _MOST_ROOM = 1 << 10, 1 << 17
"""Numbers (int64) for which the first message of a broadcast has room."""

_FEW = 16
"""Up to so many ranks, each sends a message to every other one, whatever it holds."""


class Communicator(Transport):
    """Exchanges between the ranks of one MPI communicator; every channel has a duplicate of it, and buffers."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        *,
        direct: bool = False,
        ahead: Sequence[MPI.Intracomm] = (),
    ) -> None:
        """Exchange over `comm`; `ahead` are duplicates of it, for the channels AHEAD and ROWS.

        `direct` hands device memory to MPI as it is (CUDA-aware MPI); else it is staged through pinned host memory.
        """
        super().__init__(comm, ahead)
        # Both channels of work ahead count together: training takes over their sum.
        of_work_ahead = ByteCounters(self.size)
        self._own_counters = ByteCounters(self.size), of_work_ahead, of_work_ahead
        self._byte_counters: tuple[Counters, ...] = self._own_counters
        self.staging = StagingBuffers(direct)
        self._exchanging = [False for _ in channels.CHANNELS]
        self._packets = [Packets(self) for _ in channels.CHANNELS]
        self._broadcast_lengths: dict[tuple[int, str], int] = {}
        """By channel and kind, the length of the last array that was broadcast; all ranks know the same."""

    @property
    def byte_counters(self) -> Counters:
        """Bytes sent and rows read through the calling thread's channel."""
        return self._byte_counters[channels.current()]

    def take_sent_to(self) -> np.ndarray:
        """Return the bytes int64[ranks] that all channels have sent to each rank since the last call, while none sends.

        Local.
        """
        training, ahead, _ = self._own_counters
        return training.take_by_rank(self.rank) + ahead.take_by_rank(self.rank)

    def join(self, whole: Communicator, members: np.ndarray) -> None:
        """Share the counters and transport of `whole` from now on. Local.

        Rank r here is rank `members[r]` (int64[size]) there.
        """
        self._carrier = whole._carrier
        self._members = members.tolist()
        training, ahead, _ = (PartCounters(each, members) for each in whole._own_counters)
        self._byte_counters = training, ahead, ahead

    def barrier(self) -> None:
        """Wait until all ranks are here. Collective."""
        self._call(self.comm.Ibarrier)

    # -- small things ----------------------------------------------------------------------------------------------

    def all_gather_objects(self, value: Any) -> list[Any]:
        """Gather small values of all ranks (JSON content), by rank. For start-up, not for the hot path. Collective."""
        self.byte_counters.add_to_each("control", len(to_json(value)))
        return all_gather_values(self.comm, value, self._call)

    def all_gather_rows(self, row: np.ndarray, kind: str = "control") -> np.ndarray:
        """Gather equal-length rows of all ranks as (ranks, *row.shape), by rank. Collective."""
        mpi_buffers.check(row, "gathered row")
        rows = np.empty((self.size, *row.shape), row.dtype)
        all_gather_rows(self.comm, row, rows, self._call)
        self.byte_counters.add_to_each(kind, row.nbytes)
        return rows

    def all_gather_pieces(self, piece: np.ndarray, counts: np.ndarray, kind: str) -> np.ndarray:
        """Concatenate the rows `piece` of all ranks in order; `counts`, int64[size], are known to all. Collective."""
        received = np.empty((int(counts.sum()), *piece.shape[1:]), piece.dtype)
        copies = np.concatenate([piece] * self.size)
        self.exchange(copies, np.full(self.size, len(piece)), received, counts, kind)
        return received

    def start_all_reduce_maximum(self, value: int) -> Callable[[], int]:
        """Begin to find the largest `value` (int64) of all ranks. Collective.

        It travels while other messages do. What is returned waits for it; all ranks must call that too.
        """
        if self.size == 1:
            return lambda: value

        number = self._mpi.INT64_T
        mine = np.array([value], np.int64)
        largest = np.empty(1, np.int64)
        start = partial(self.comm.Iallreduce, [mine, number], [largest, number], op=self._mpi.MAX)
        finish = self._begin(MessageQueue([Message(start)]))
        self.byte_counters.add_to_each("control", mine.nbytes)

        def result() -> int:
            finish()
            # The buffers must live until the request is done.
            return int(max(largest[0], mine[0]))

        return result

    def broadcast(
        self, array: np.ndarray | None, kind: str, *, expected: int | None = None, counted: bool = True
    ) -> np.ndarray:
        """Rank 0's one-dimensional int64 array on every rank; others pass None. Collective.

        The first packet carries the length, and has room for `expected` numbers, up to 1 MiB, or as many as the array
        before had of its kind and channel: one that is no longer takes one message. All ranks expect the same. Unless
        `counted` here, bytes are counted by the caller. Raises ValueError for another kind of array.
        """
        # Rank 0 fills the first packet: the length and as many numbers as fit.
        channel = channels.current()
        likely = self._broadcast_lengths.get((channel, kind), 0) if expected is None else expected
        room = min(max(likely, _LEAST_ROOM), _MOST_ROOM)
        packet = np.empty(1 + room, np.int64)
        if self.rank == 0:
            assert array is not None, "rank 0 has the array"
            mpi_buffers.check(array, "broadcast")
            if array.ndim != 1 or array.dtype != np.int64:
                raise ValueError(f"broadcast: needs int64[n], not {array.dtype} of shape {array.shape}")
            packet[0] = array.size
            packet[1 : 1 + min(array.size, room)] = array[:room]
            result = array
        self._call(partial(self.comm.Ibcast, mpi_buffers.as_bytes(packet, "packet"), root=0))

        # Others now know the length.
        if self.rank != 0:
            result = np.empty(packet[0], np.int64)
            result[:room] = packet[1 : 1 + min(result.size, room)]

        # What did not fit follows.
        rest = mpi_buffers.as_bytes(result, "broadcast")[room * 8 :]
        for part in mpi_buffers.parts(len(rest)):
            self._call(partial(self.comm.Ibcast, rest[part], root=0))
        self._broadcast_lengths[channel, kind] = result.size
        if self.rank == 0 and counted:
            self.byte_counters.add_to_each(kind, result.nbytes)
        return result

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
        """Begin what `exchange` does; what is returned waits for its end, and all ranks must call that too. Collective.

        Until then neither array may be touched, nor another exchange begun in this channel.
        """
        return self.start_exchanges([(send, send_counts, receive, receive_counts, kind)])

    def start_exchanges(self, exchanges: Sequence[Exchange]) -> Callable[[], None]:
        """Start several exchanges, as `start_exchange`, that travel one after the other. Collective.

        A rank that waits for their end needs nothing more of the others, whatever these do first.
        """
        channel, buffers = self._idle_channel(), self.staging
        receives, sends, arriving = [], [], []
        for number, (send, send_counts, receive, receive_counts, kind) in enumerate(exchanges):
            mpi_buffers.check(send, "sent rows")
            mpi_buffers.check(receive, "received rows")
            if mpi_buffers.type_code(send) != mpi_buffers.type_code(receive) or send.shape[1:] != receive.shape[1:]:
                raise CommunicationError("sent and received rows differ in type or width")
            if send_counts.sum() != send.shape[0] or receive_counts.sum() != receive.shape[0]:
                raise CommunicationError("counts do not add up to the rows given")

            # Device arrays may pass through host memory on both sides.
            outbound = buffers.outgoing(f"send {number}", send)
            inbound = buffers.incoming(f"receive {number}", receive)
            arriving.append((inbound, receive))
            messages = self._swap(outbound, send_counts, inbound, receive_counts, kind)
            receives += messages[0]
            sends += messages[1]
        finish = self._start(receives, sends)
        self._exchanging[channel] = True

        def end() -> None:
            self._exchanging[channel] = False
            finish()
            for inbound, receive in arriving:
                buffers.deliver(inbound, receive)

        return end

    def start_pieces(
        self, pieces: Sequence[Sequence[np.ndarray]], rooms: Sequence[Sequence[int]], kind: str
    ) -> Callable[[], list[list[np.ndarray]]]:
        """Begin to send pieces whose sizes the receivers do not know; the result waits for those of others. Collective.

        pieces: for each rank, those for it, uint8[k] each, in order, none empty; rooms: for each rank, most bytes of
        each piece that it sends, at most a fragment. Both ranks know how many pieces there are. Returns what arrived,
        by rank. Until the end no piece may be touched, nor another exchange begun in this channel.
        """
        channel, rank, size = self._idle_channel(), self.rank, self.size
        code = mpi_buffers.type_code(np.empty(0, np.uint8))
        arrived: list[list[np.ndarray]] = [[np.empty(room, np.uint8) for room in each] for each in rooms]
        receives, sends = [], []
        for step in range(1, size):
            origin, to = (rank - step) % size, (rank + step) % size
            for number, buffer in enumerate(arrived[origin]):
                check = partial(self._keep_arrived, arrived[origin], number, origin, code)
                receives.append(self._receive(buffer, origin, code, check))
            for piece in pieces[to]:
                sends += self._sends(piece, to, code)
        sizes = np.array([sum(map(len, each)) for each in pieces], np.int64)
        self.byte_counters.add_to_ranks(kind, int(sizes.sum()), sizes)
        finish = self._start(receives, sends)
        self._exchanging[channel] = True

        def end() -> list[list[np.ndarray]]:
            self._exchanging[channel] = False
            finish()
            return arrived

        return end

    def start_sends(self, pieces: Sequence[tuple[Array, np.ndarray]], kind: str) -> Callable[[], None]:
        """Begin to send rows of several arrays of the host, one array after the other; the result waits for the end.

        Each piece is an array of rows in order of destination rank, and int64[size]: the rows for each rank. A rank
        gets them by as many calls of `receive`. Until the end no array may be touched.
        """
        messages = []
        for array, counts in pieces:
            out, width = mpi_buffers.as_bytes(array, "sent rows"), math.prod(array.shape[1:]) * array.itemsize
            ends = list(accumulate(counts.tolist(), initial=0))
            for to in np.flatnonzero(counts).tolist():
                messages += self._sends(out[ends[to] * width : ends[to + 1] * width], to, mpi_buffers.type_code(array))
            self.byte_counters.add_to_ranks(kind, ends[-1] * width, counts * width)
        return self._start(messages)

    def receive(self, rows: Array, counts: np.ndarray) -> None:
        """Fill `rows` of the host, in order of source rank, with a piece of what others send by `start_sends`.

        counts: int64[size], the rows of each rank. They arrive side by side: a slow rank keeps no other from sending.
        """
        into, width = mpi_buffers.as_bytes(rows, "received rows"), math.prod(rows.shape[1:]) * rows.itemsize
        ends, code = list(accumulate(counts.tolist(), initial=0)), mpi_buffers.type_code(rows)
        lanes: list[list[Message]] = [[] for _ in range(_LANES)]
        for place, origin in enumerate(np.flatnonzero(counts).tolist()):
            part = into[ends[origin] * width : ends[origin + 1] * width]
            lanes[place % _LANES] += self._receives(part, origin, code)
        self._start(*lanes)()

    def exchange_counts(self, counts: np.ndarray) -> np.ndarray:
        """Send row r of `counts` (int64[size] or [size, k]) to rank r; returns what the ranks sent. Collective."""
        theirs = np.empty_like(counts)
        mine, others = mpi_buffers.as_bytes(counts, "counts"), mpi_buffers.as_bytes(theirs, "counts")
        self._call(partial(self.comm.Ialltoall, mine, others))
        self.byte_counters.add_to_each("control", counts.nbytes // self.size)
        return theirs

    def exchange_ids(self, ids: np.ndarray, counts: np.ndarray, ranges: IdCodec) -> tuple[np.ndarray, np.ndarray]:
        """Send int64 `ids` (in order of destination), returns what others sent and their counts. Collective.

        Ids travel as offsets in `ranges`, which all ranks give alike and which hold the ids.
        """
        encoded = ranges.encode(ids, counts)
        if self.size > _FEW:
            # Counts first, so that all know how much arrives, and nobody is sent nothing.
            theirs = self.exchange_counts(counts)
            received = ranges.empty(int(theirs.sum()))
            self.exchange(encoded, counts, received, theirs, "ids")
        else:
            width, code = encoded.itemsize, mpi_buffers.type_code(encoded)
            packets = self._packets[self._idle_channel()]
            arrived, sizes = packets.exchange(mpi_buffers.as_bytes(encoded, "ids"), counts * width, code)
            received, theirs = arrived.view(encoded.dtype), sizes // width
            self.byte_counters.add_to_each("control", counts.itemsize)
            self.byte_counters.add_to_ranks("ids", len(ids) * width - int(counts[self.rank]) * width, counts * width)
        return ranges.decode(received, self.rank), theirs

    def ring_hop(self, state: Array, kinds: Sequence[tuple[str, int]], distance: int = 1) -> None:
        """Pass one-dimensional `state` to rank - `distance` and replace it by that of rank + `distance`. Collective.

        `kinds` lists the (kind, bytes) that make up the state, for the byte counters. Never blocks on buffer sizes:
        the receive is posted before the send.
        """
        if distance % self.size == 0:
            return
        to, origin = (self.rank - distance) % self.size, (self.rank + distance) % self.size
        code = mpi_buffers.type_code(state)

        # The state that arrives must not overwrite the one that leaves.
        buffers = self.staging
        outbound = buffers.outgoing("send", state)
        if buffers.stages(state):
            inbound = buffers.incoming("receive", state)
        else:
            inbound = buffers.scratch("ring", state, *state.shape)
        into, outgoing = mpi_buffers.as_bytes(inbound, "ring state"), mpi_buffers.as_bytes(outbound, "ring state")
        self._start(self._receives(into, origin, code), self._sends(outgoing, to, code))()

        if isinstance(state, np.ndarray):
            state[...] = inbound
        else:
            # What arrives is of the kind of `state`.
            state.copy_(cast("torch.Tensor", inbound))
        for kind, count in kinds:
            self.byte_counters.add_to_rank(kind, count, to)

    def all_reduce(self, flat: Array, kind: str = "gradients") -> None:
        """Replace one-dimensional `flat` by its sum over ranks, added in rank order. Collective.

        Each rank adds one slice of all ranks' arrays and sends the sum to all: 2 (R-1)/R of the array leave a rank.
        """
        if self.size == 1:
            return

        # Rank r gets slice r of all arrays.
        length = flat.shape[0]
        bounds = np.arange(self.size + 1, dtype=np.int64) * length // self.size
        widths = np.diff(bounds)
        mine = np.full(self.size, widths[self.rank])
        slices = self.staging.scratch("slices", flat, int(mine.sum()))
        self.exchange(flat, widths, slices, mine, kind)

        # It adds them in rank order.
        slices = slices.reshape(self.size, int(widths[self.rank]))
        total = slices[0]
        for part in slices[1:]:
            total += part

        # All ranks get all sums.
        repeated = self.staging.scratch("sums", flat, self.size, total.shape[0])
        repeated[:] = cast("torch.Tensor", total)  # numpy's where `repeated` is
        self.exchange(repeated.reshape(-1), mine, flat, widths, kind)

    def _keep_arrived(self, arrived: list[np.ndarray], number: int, origin: int, code: int, status: MPI.Status) -> None:
        """Cut buffer `number` of `arrived` to the bytes that came from `origin`. Raises CommunicationError."""
        size = min(status.Get_count(), len(arrived[number]))
        self._check_arrival(origin, code, size, status)
        arrived[number] = arrived[number][:size]

    def _idle_channel(self) -> int:
        """Return the calling thread's channel. Raises CommunicationError while an exchange is under way in it."""
        channel = channels.current()
        if self._exchanging[channel]:
            raise CommunicationError("an exchange was begun before the one before it in its channel had ended")
        return channel

    def _swap(
        self, send: Array, send_counts: np.ndarray, receive: Array, receive_counts: np.ndarray, kind: str
    ) -> tuple[list[Message], list[Message]]:
        """Build the receives and sends of one exchange and count their bytes; copy local rows."""
        out, into = mpi_buffers.as_bytes(send, "sent rows"), mpi_buffers.as_bytes(receive, "received rows")
        width = math.prod(send.shape[1:]) * send.itemsize
        starts, ends = (list(accumulate(counts.tolist(), initial=0)) for counts in (send_counts, receive_counts))
        code, rank, size = mpi_buffers.type_code(send), self.rank, self.size

        # In each step every rank sends to another rank than all others do: no link is fed by many at once.
        receives, sends, payload = [], [], 0
        for step in range(1, size):
            origin, to = (rank - step) % size, (rank + step) % size
            receives += self._receives(into[ends[origin] * width : ends[origin + 1] * width], origin, code)
            sends += self._sends(out[starts[to] * width : starts[to + 1] * width], to, code)
            payload += (starts[to + 1] - starts[to]) * width
        self.byte_counters.add_to_ranks(kind, payload, send_counts * width)

        # Local rows are copied.
        if starts[rank + 1] > starts[rank]:
            # Both arrays are numpy's or both are torch's.
            receive[ends[rank] : ends[rank + 1]] = cast("torch.Tensor", send[starts[rank] : starts[rank + 1]])
        return receives, sends
