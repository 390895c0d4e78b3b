"""The communicator of real ranks.

Arrays (numpy, torch on the host, or on a GPU) are sent by MPI as checked bytes.
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
from leapmpi.comm.collectives import all_gather_rows, all_gather_values
from leapmpi.comm.communicator import FEW, LONG, CommunicationError, Communicator, Exchange, long_rows
from leapmpi.comm.flow_control import Message, MessageQueue
from leapmpi.comm.id_codec import IdCodec
from leapmpi.comm.packets import Packets
from leapmpi.comm.staging import StagingBuffers
from leapmpi.comm.transport import Transport
from leapmpi.system import channels

if TYPE_CHECKING:
    import torch
    from mpi4py import MPI

    from leapmpi.comm.mpi_buffers import Array

_LANES = 8
"""Ranks from which `receive` gets rows at once: their windows together are no more than a switch can queue."""

_LEAST_ROOM, _MOST_ROOM = 1 << 10, 1 << 17
"""Numbers (int64) for which the first message of a broadcast has room."""


def of_job(communicator: Communicator) -> MPICommunicator:
    """Return `communicator`, which is that of a running job, whose ranks are processes."""
    return cast("MPICommunicator", communicator)


class MPICommunicator(Communicator, Transport):
    """Exchanges between the ranks of one MPI communicator; every channel has a duplicate of it, and buffers."""

    def __init__(self, comm: MPI.Intracomm, *, direct: bool = False, ahead: Sequence[MPI.Intracomm] = ()) -> None:
        """Exchange over `comm`; `ahead` are duplicates of it, for the channels AHEAD and ROWS.

        `direct` hands device memory to MPI as it is (CUDA-aware MPI); else it is staged through pinned host memory.
        """
        super().__init__(comm, ahead)
        # Both channels ahead of training share counters: what they send is one kind of traffic, hidden behind the step.
        of_work_ahead = ByteCounters(self.size)
        self._own_counters = ByteCounters(self.size), of_work_ahead, of_work_ahead
        self._byte_counters: tuple[Counters, ...] = self._own_counters
        self.staging = StagingBuffers(direct)
        self._exchanging = [False for _ in channels.CHANNELS]
        # A set of packets for each channel, as two threads may exchange at the same time.
        self._packets = [Packets(self) for _ in channels.CHANNELS]
        self._broadcast_lengths: dict[tuple[int, str], int] = {}
        """By channel and kind, the length of the last array that was broadcast; all ranks know the same."""

    @property
    def byte_counters(self) -> Counters:
        """Counters of what the calling thread's channel sends and reads."""
        return self._byte_counters[channels.current()]

    def take_sent_to(self) -> np.ndarray:
        """Return int64[ranks]: the bytes that all channels have sent to each rank since the last call. Local."""
        training, ahead, _ = self._own_counters
        return training.take_by_rank(self.rank) + ahead.take_by_rank(self.rank)

    def join(self, whole: MPICommunicator, members: np.ndarray) -> None:
        """Count, and be carried, with `whole` from now on. Local.

        Rank r here is rank `members[r]` (int64[size]) there.
        """
        self._carrier = whole._carrier
        self._members = members.tolist()
        training, ahead, _ = (PartCounters(each, members) for each in whole._own_counters)
        self._byte_counters = training, ahead, ahead

    def barrier(self) -> None:
        self._call(self.comm.Ibarrier)

    def _gathered_objects(self, value: Any) -> list[Any]:
        return all_gather_values(self.comm, value, self._call)

    def _gathered_rows(self, row: np.ndarray, kind: str) -> np.ndarray:
        rows = np.empty((self.size, *row.shape), row.dtype)
        all_gather_rows(self.comm, row, rows, self._call)
        return rows

    def _started_maximum(self, value: int) -> Callable[[], int]:
        number = self._mpi.INT64_T
        mine = np.array([value], np.int64)
        largest = np.empty(1, np.int64)
        start = partial(self.comm.Iallreduce, [mine, number], [largest, number], op=self._mpi.MAX)
        finish = self._begin(MessageQueue([Message(start)]))

        def result() -> int:
            finish()
            # The buffers must live until the request is done.
            return int(max(largest[0], mine[0]))

        return result

    def _broadcast(self, array: np.ndarray | None, kind: str, expected: int | None) -> np.ndarray:
        """Send a packet with the length and room for the expected numbers, then the rest."""
        # Rank 0 fills the first packet: the length and as many numbers as fit.
        channel = channels.current()
        likely = self._broadcast_lengths.get((channel, kind), 0) if expected is None else expected
        room = min(max(likely, _LEAST_ROOM), _MOST_ROOM)
        packet = np.empty(1 + room, np.int64)
        if self.rank == 0:
            assert array is not None, "rank 0 has the array"
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
        return result

    def _scattered(self, rows: np.ndarray | None, expected: int) -> np.ndarray:
        """Send packets with the length of a row and room for the expected numbers, then the rest."""
        room = min(max(expected, _LEAST_ROOM // self.size), max(1, _MOST_ROOM // self.size))
        packets = None
        if rows is not None:
            packets = np.zeros((self.size, 1 + room), np.int64)
            packets[:, 0] = rows.shape[1]
            packets[:, 1 : 1 + min(rows.shape[1], room)] = rows[:, :room]
        packet = self._scatter(packets, 1 + room)

        # What did not fit follows.
        found, rest = [packet[1 : 1 + packet[0]]], max(0, int(packet[0]) - room)
        for part in mpi_buffers.parts(rest, max(1, mpi_buffers.MESSAGE_LIMIT // (8 * self.size))):
            of_all = None if rows is None else np.ascontiguousarray(rows[:, room + part.start : room + part.stop])
            found.append(self._scatter(of_all, part.stop - part.start))
        return np.concatenate(found)

    def _scatter(self, rows: np.ndarray | None, length: int) -> np.ndarray:
        """Return this rank's row of `length` numbers of rank 0's `rows` int64[ranks, length]."""
        row = np.empty(length, np.int64)
        sent = None if rows is None else mpi_buffers.as_bytes(rows, "scattered rows")
        self._call(partial(self.comm.Iscatter, sent, mpi_buffers.as_bytes(row, "row"), root=0))
        return row

    def _started(self, exchanges: Sequence[Exchange]) -> Callable[[], None]:
        channel, buffers = self._idle_channel(), self.staging
        receives, sends, arriving = [], [], []
        for number, (send, send_counts, receive, receive_counts, _) in enumerate(exchanges):
            # Device arrays may pass through host memory on both sides.
            outbound = buffers.outgoing(f"send {number}", send)
            inbound = buffers.incoming(f"receive {number}", receive)
            arriving.append((inbound, receive))
            messages = self._swap(outbound, send_counts, inbound, receive_counts)
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
        channel, rank, size = self._idle_channel(), self.rank, self.size
        code = mpi_buffers.type_code(np.empty(0, np.uint8))
        arrived: list[list[np.ndarray]] = [[np.empty(room, np.uint8) for room in each] for each in rooms]
        # Ranks start at different partners, so that no rank receives from all others at the same time. Receivers do not
        # know sizes: buffers have the largest, and are cut when a message has arrived.
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
            # Ranks without rows get no message: they know by the counts that none comes.
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
        # Several lanes receive at once, or the slowest sender would hold up all after it.
        lanes: list[list[Message]] = [[] for _ in range(_LANES)]
        for place, origin in enumerate(np.flatnonzero(counts).tolist()):
            part = into[ends[origin] * width : ends[origin + 1] * width]
            lanes[place % _LANES] += self._receives(part, origin, code)
        self._start(*lanes)()

    def _exchanged_counts(self, counts: np.ndarray) -> np.ndarray:
        if self.size <= FEW:
            return self._transposed(counts)

        # Among many ranks, few counts are large. A rank that sees the mark of one knows that 8 bytes of each follow.
        theirs = self._transposed(np.minimum(counts, LONG).astype(np.uint16)).astype(np.int64)
        sent, received = long_rows(counts), long_rows(theirs)
        if sent.any() or received.any():
            arrived = np.ascontiguousarray(theirs[received > 0])
            self._started([(np.ascontiguousarray(counts[sent > 0]), sent, arrived, received, "counts")])()
            theirs[received > 0] = arrived
        return theirs

    def _transposed(self, counts: np.ndarray) -> np.ndarray:
        """Send row r of `counts` (numbers[size] or [size, k]) to rank r; return what the ranks sent."""
        theirs = np.empty_like(counts)
        mine, others = mpi_buffers.as_bytes(counts, "counts"), mpi_buffers.as_bytes(theirs, "counts")
        self._call(partial(self.comm.Ialltoall, mine, others))
        return theirs

    def _exchanged_ids(self, ids: np.ndarray, counts: np.ndarray, ranges: IdCodec) -> tuple[np.ndarray, np.ndarray]:
        encoded = ranges.encode(ids, counts)
        if self.size > FEW:
            # Counts first, so that all know how much arrives, and nobody is sent nothing.
            theirs = self._exchanged_counts(counts)
            received = ranges.empty(int(theirs.sum()))
            self._started([(encoded, counts, received, theirs, "ids")])()
        else:
            width, code = encoded.itemsize, mpi_buffers.type_code(encoded)
            packets = self._packets[self._idle_channel()]
            arrived, sizes = packets.exchange(mpi_buffers.as_bytes(encoded, "ids"), counts * width, code)
            received, theirs = arrived.view(encoded.dtype), sizes // width
        return ranges.decode(received, self.rank), theirs

    def _hop(self, state: Array, to: int, origin: int) -> None:
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

    def _reduce(self, flat: Array, widths: np.ndarray, kind: str) -> None:
        # Rank r gets slice r of all arrays.
        mine = np.full(self.size, widths[self.rank])
        slices = self.staging.scratch("slices", flat, int(mine.sum()))
        self._started([(flat, widths, slices, mine, "slices")])()

        # It adds them in rank order.
        slices = slices.reshape(self.size, int(widths[self.rank]))
        total = slices[0]
        for part in slices[1:]:
            total += part

        # All ranks get all sums.
        repeated = self.staging.scratch("sums", flat, self.size, total.shape[0])
        repeated[:] = cast("torch.Tensor", total)  # numpy's where `repeated` is
        self._started([(repeated.reshape(-1), mine, flat, widths, "sums")])()

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
        self, send: Array, send_counts: np.ndarray, receive: Array, receive_counts: np.ndarray
    ) -> tuple[list[Message], list[Message]]:
        """Return the receives and sends of one exchange; local rows are copied."""
        out, into = mpi_buffers.as_bytes(send, "sent rows"), mpi_buffers.as_bytes(receive, "received rows")
        width = math.prod(send.shape[1:]) * send.itemsize
        starts, ends = (list(accumulate(counts.tolist(), initial=0)) for counts in (send_counts, receive_counts))
        code, rank, size = mpi_buffers.type_code(send), self.rank, self.size

        # In each step every rank sends to another rank than all others do: no link is fed by many at once.
        receives, sends = [], []
        for step in range(1, size):
            origin, to = (rank - step) % size, (rank + step) % size
            receives += self._receives(into[ends[origin] * width : ends[origin + 1] * width], origin, code)
            sends += self._sends(out[starts[to] * width : starts[to + 1] * width], to, code)

        # Local rows are copied.
        if starts[rank + 1] > starts[rank]:
            # Both arrays are numpy's or both are torch's.
            receive[ends[rank] : ends[rank + 1]] = cast("torch.Tensor", send[starts[rank] : starts[rank + 1]])
        return receives, sends
