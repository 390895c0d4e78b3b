"""Learned rows, one for each vertex of a dataset without features, on the vertex's owner, updated by Adam.

A row is a pure function of (seed, original vertex id) at first. An iteration updates only the rows that it has read.
`LearnedRows.collect` sums their gradients on the owner, those of other ranks included, and `step` updates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leapmpi.comm.communicator import Communicator
from leapmpi.dataset.hdf5.row_blocks import row_ranges
from leapmpi.dataset.topology import places_among
from leapmpi.errors import DataError, counted
from leapmpi.features.row_memory import RowMemory
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.features.shards.row_request import RequestedRows
from leapmpi.system.counter_rng import fold
from leapmpi.system.jit import compiled, compiled_dividing

FAST, SLOW, EPSILON = 0.9, 0.999, 1e-8
"""Adam's decay of its two moments, and the addend to the root of the second."""

_INITIAL = np.uint64(0x6C6561726E656400)
"""Keeps first rows apart from other draws of the same seed."""

ROWS, IDS = "learned.rows", "learned.ids"
"""Names in weights files: rows float[vertices, width], and int64[vertices], their original vertex ids, ascending."""

ROW_ARRAYS = ("rows", "first", "second", "best")
"""Members of `LearnedRows.state` that are as wide as the rows."""


@compiled
def _fill(base, original, limit, out):
    for i in range(len(out)):
        row = fold(base, original[i])
        for j in range(out.shape[1]):
            # 53 bits of the hash: as many as a float64 in [0, 1) has.
            out[i, j] = (2.0 * (np.float64(fold(row, j) >> np.uint64(11)) * 2.0**-53) - 1.0) * limit[i]


@compiled
def _add(ids, gradients, first, slots, touched, sums, known):
    """Add `gradients` to the `sums` of their rows, in their order; the number of `touched` rows, `known` before."""
    for i in range(len(ids)):
        row = ids[i] - first
        slot = slots[row]
        # Rows that no one has read have no sum: space is that of the rows of a batch.
        if slot < 0:
            slot = slots[row] = known
            touched[known] = row
            sums[known] = 0
            known += 1
        for j in range(gradients.shape[1]):
            sums[slot, j] += gradients[i, j]
    return known


@compiled_dividing
def _move(values, gradients, first, second, rate, shrunk, added, begun_first, begun_second):
    """Apply Adam to one row. AdamW shrinks the value itself; Adam adds the decay to the gradient."""
    for j in range(len(values)):
        value, gradient = np.float64(values[j]), np.float64(gradients[j])
        value -= shrunk * value
        gradient += added * value
        first[j] = FAST * first[j] + (1 - FAST) * gradient
        second[j] = SLOW * second[j] + (1 - SLOW) * gradient * gradient
        root = np.sqrt(second[j] / begun_second) + EPSILON
        values[j] = value - rate * first[j] / begun_first / root


@compiled_dividing
def _adam(rows, gradients, values, first, second, steps, rate, decay, decoupled):
    """Apply Adam to single rows; their moments are corrected by the number of their own steps."""
    shrunk, added = (rate * decay, 0.0) if decoupled else (0.0, decay)
    for i in range(len(rows)):
        row = rows[i]
        steps[row] += 1
        begun_first, begun_second = 1 - FAST ** steps[row], 1 - SLOW ** steps[row]
        # Row by row, so that the compiler knows that columns follow each other, and makes vectors of them.
        _move(values[row], gradients[i], first[row], second[row], rate, shrunk, added, begun_first, begun_second)


def first_rows(
    original: np.ndarray,
    width: int,
    dtype: str,
    seed: int,
    bound: np.ndarray | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Return the rows (len(original), width) of vertices with the `original` ids (int64) before training.

    Uniform between -b and b for b = sqrt(3 / width), so that a row has length 1 about, or the `bound` of each vertex,
    float64[n]. Those of float32 are the rounded ones of float64. They are written to `out` where it is given.
    """
    # By original id, so that rows do not depend on the partition (R1).
    base = fold(_INITIAL, np.uint64(seed))
    rows = np.empty((len(original), width), dtype) if out is None else out
    _fill(np.uint64(base), original, np.full(len(rows), (3 / width) ** 0.5) if bound is None else bound, rows)
    return rows


class LearnedShard(HostShard):
    """Shard of rows that change: they are always copied, never read in place.

    `nbytes` counts their moments and the best, of files what is in memory. `rows` (vertices, width), in `memory`, may
    be a placeholder without memory, if nothing is read.
    """

    def __init__(self, rows: np.ndarray, first: int, memory: RowMemory) -> None:
        super().__init__([rows], first)
        self.addressable, self._memory = False, memory
        # Rows, two moments and the best rows so far; the number of steps of each row.
        self.nbytes = memory.held_bytes(4 * rows.shape[0] * self.row_bytes) + 4 * rows.shape[0]

    @property
    def in_place(self) -> bool:
        """No: the rows change."""
        return False

    def split(self, ids: np.ndarray) -> Iterator[tuple[Any, int, np.ndarray, np.ndarray]]:
        """Split as HostShard does; announce rows in files."""
        self._memory.announce(self.parts[0], ids - self.bounds[0])
        yield from super().split(ids)


class LearnedRows:
    """The learned rows of the vertices `first` to `first + len(original)`, whose original ids are int64 `original`.

    bound: as of `first_rows`. room: as of RowMemory. Raises ConfigError or
    ResourceError where no disk has room for them.
    """

    def __init__(
        self,
        original: np.ndarray,
        first: int,
        width: int,
        dtype: str,
        seed: int,
        bound: np.ndarray | None = None,
        room: int | None = None,
    ) -> None:
        self.original = np.ascontiguousarray(original, np.int64)
        self.first = first
        self.memory, shape = RowMemory(room), (len(self.original), width)
        self.values, *self._moments = self.memory.tables(3, *shape, dtype)
        row_bytes = width * self.values.itemsize
        for begin, end in row_ranges(len(self.original), row_bytes):
            limits = None if bound is None else bound[begin:end]
            first_rows(self.original[begin:end], width, dtype, seed, limits, self.values[begin:end])
            self.memory.touch(end - begin, row_bytes)
        self.shard = LearnedShard(self.values, first, self.memory)
        self.best: np.ndarray | None = None
        # A file takes its room now: a disk that is full later would end the training.
        self._best = None if room is None else self.memory.zeros(shape, dtype)
        self._steps = np.zeros(len(self.original), np.int32)

        # Of the iteration: what was read, the rows it touches, and their gradients.
        self._read: list[tuple[np.ndarray, Tensor]] = []
        self._fetched: list[tuple[RequestedRows, np.ndarray, np.ndarray, Tensor]] = []
        self._slots = np.full(len(self.original), -1, np.int32)
        self.touched = np.empty(0, np.int64)
        self.gradients = np.empty((0, width), dtype)

    # -- an iteration ------------------------------------------------------------------------------------------------

    def read(self, ids: np.ndarray, rows: Tensor) -> None:
        """Record the use of `rows` (k, width), copies of the rows of local `ids` int64[k], which may repeat."""
        self._read.append((ids, rows.requires_grad_()))

    def fetched(self, request: RequestedRows, requested: np.ndarray, counts: np.ndarray, rows: Tensor) -> None:
        """Record that the iteration computes with `rows` (k, width), those of `request`.

        requested, counts: int64, the local ids whose rows were sent, by requesting rank, and how many to each.
        """
        self._fetched.append((request, requested, counts, rows.requires_grad_()))

    def collect(self, communicator: Communicator) -> None:
        """Send the gradients of all rows that were read to their owners; sum them by row: `touched`, `gradients`.

        Collective.

        Those of this rank come first, in order of reading, then those of the others, in order of rank.
        """
        pieces = [(ids, _gradient(rows)) for ids, rows in self._read]
        for request, requested, counts, rows in self._fetched:
            gradient = _gradient(rows)
            # The exchange of the fetch in reverse: requesters send, owners receive.
            sent = np.ascontiguousarray(gradient[request.remote_positions])
            returned = np.empty((len(requested), gradient.shape[1]), gradient.dtype)
            communicator.exchange(sent, request.remote_counts, returned, counts, "row gradients")
            pieces += [(request.local_ids, gradient[request.local_positions]), (requested, returned)]
        self._sum(pieces)

    def _sum(self, pieces: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        pieces = list(pieces)
        most = min(sum(len(ids) for ids, _ in pieces), len(self.original))
        touched, sums, known = np.empty(most, np.int64), np.empty((most, self.values.shape[1]), self.values.dtype), 0
        for ids, gradients in pieces:
            known = _add(ids, gradients, self.first, self._slots, touched, sums, known)
        self.forget()
        self.touched, self.gradients = touched[:known], sums[:known]
        # Reset only the touched slots: the table has an entry per vertex.
        self._slots[self.touched] = -1

    def forget(self) -> None:
        """Drop what the iteration has read, and its gradients. Local."""
        self._read, self._fetched = [], []
        self.touched, self.gradients = self.touched[:0], self.gradients[:0]

    def squared_norm(self, communicator: Communicator) -> float:
        """Compute the squared Euclidean norm of the gradients of all ranks' rows. Collective."""
        square = float(np.square(self.gradients, dtype=np.float64).sum())
        return float(communicator.all_gather_rows(np.array([square])).sum())

    def step(self, rate: float, decay: float, decoupled: bool) -> None:
        """Move the touched rows by Adam, with weight `decay`, AdamW's if `decoupled`, and forget them. Local.

        Lazily: other rows keep value and moments, and moments are corrected by the number of the row's own steps.
        """
        first, second = self._moments
        self.memory.announce(self.values, self.touched)
        _adam(self.touched, self.gradients, self.values, first, second, self._steps, rate, decay, decoupled)
        self.memory.touch(len(self.touched), 3 * self.shard.row_bytes)
        self.forget()

    # -- what is kept ------------------------------------------------------------------------------------------------

    def keep_best(self) -> None:
        """Keep the present rows as the best so far."""
        self.memory.read_in_order()
        every, best = np.arange(len(self.values)), self._room_of_best()
        self.memory.copy(best, every, self.values, every)
        self.best = best

    def _room_of_best(self) -> np.ndarray:
        if self._best is None:
            self._best = np.zeros_like(self.values)
        return self._best

    def state(self) -> dict[str, np.ndarray]:
        """Return the state of this rank's rows, one entry per vertex in every array."""
        self.memory.read_in_order()
        first, second = self._moments
        best = {} if self.best is None else {"best": self.best}
        return {
            "ids": self.original, "rows": self.values, "first": first, "second": second, "steps": self._steps, **best
        }  # fmt: skip

    def restore(self, pieces: Iterable[Mapping[str, np.ndarray]], origin: str) -> None:
        """Take up the `state` of the ranks of an earlier start, in any order, until every row is found. Local.

        Raises DataError, naming `origin`, where rows are missing or of another width.
        """
        found = np.zeros(len(self.original), bool)
        for piece in pieces:
            # An earlier start may have had no best rows yet.
            if "best" in piece and self.best is None:
                self.best = self._room_of_best()
            targets = {"rows": self.values, "first": self._moments[0], "second": self._moments[1]}
            targets |= {"steps": self._steps} | ({} if self.best is None else {"best": self.best})
            ids = piece.get("ids", np.empty(0, np.int64)).reshape(-1)
            here, there = self._places(ids)
            for name, target in targets.items():
                array = piece.get(name)
                if array is None or array.shape != (len(ids), *target.shape[1:]):
                    raise DataError(f"{origin}: the learned rows are damaged or of another width ({name})")
                self.memory.copy(target, here, array, there)
            found[here] = True
            if found.all():
                return
        raise DataError(
            f"{origin}: it lacks {counted((~found).sum(), 'learned row')} of the vertices here; choose another run"
        )

    def _places(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the rows here with one of the `ids` (int64[k], original), and their places in `ids`."""
        # Binary search for each row here; ids of another partition may be in any order.
        place = places_among(self.original, ids, np.argsort(ids, kind="stable"))
        here = np.flatnonzero(place >= 0)
        return here, place[here]

    def gathered(self, communicator: Communicator, best: bool = False) -> dict[str, np.ndarray]:
        """Gather the rows of all vertices, now or the `best`, as in weights files, on rank 0; else {}. Collective."""
        chosen = self.best if best and self.best is not None else self.values
        rows = communicator.all_gather_rows(np.array([len(self.original)]))[:, 0]
        # Everything goes to rank 0: one exchange in which only it receives.
        send, receive = np.zeros(communicator.size, np.int64), np.zeros(communicator.size, np.int64)
        send[0] = len(self.original)
        if communicator.rank == 0:
            receive[:] = rows
        # Ascending ids, whatever the partition.
        mine, ids = np.argsort(self.original), np.empty(int(receive.sum()), np.int64)
        communicator.exchange(self.original[mine], send, ids, receive, "control")
        counts, starts = receive, np.cumsum(receive) - receive
        place = np.empty_like(ids)
        place[np.argsort(ids)] = np.arange(len(ids))
        whole = self.memory.zeros((len(ids), chosen.shape[1]), chosen.dtype)

        # Block by block of each rank: what arrives takes little memory beside the whole.
        for begin, end in row_ranges(int(rows.max()), chosen.shape[1] * chosen.itemsize):
            self.memory.announce(chosen, mine[begin:end])
            piece = chosen[mine[begin:end]]
            send[0], receive = len(piece), np.clip(counts - begin, 0, end - begin)
            arrived = np.empty((int(receive.sum()), chosen.shape[1]), chosen.dtype)
            communicator.exchange(piece, send, arrived, receive, "control")
            here = [place[start : start + count] for start, count in zip(starts + begin, receive, strict=True)]
            self.memory.copy(whole, np.concatenate(here), arrived, np.arange(len(arrived)))
        return {ROWS: whole, IDS: np.sort(ids)} if communicator.rank == 0 else {}

    def assign(self, arrays: Mapping[str, np.ndarray], origin: str) -> None:
        """Take over rows of a weights file. Raises DataError, naming `origin`, where rows do not fit or are missing."""
        rows, ids = arrays.get(ROWS), arrays.get(IDS, np.empty(0, np.int64))
        if rows is None or rows.shape != (len(ids), self.values.shape[1]):
            raise DataError(f"{origin}: it holds no learned rows of {counted(self.values.shape[1], 'column')}")
        here, there = self._places(ids)
        if len(here) < len(self.original):
            missing = np.setdiff1d(self.original, ids)
            raise DataError(
                f"{origin}: it holds no row of vertex {missing[0]} (original id) and {len(missing) - 1} others; "
                "learned rows serve the vertices that they were learned for"
            )
        self.memory.copy(self.values, here, rows, there)


def without_rows(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Drop the learned rows from `arrays` of a weights file; return the parameters of the model."""
    return {name: array for name, array in arrays.items() if name not in (ROWS, IDS)}


def _gradient(rows: Tensor) -> np.ndarray:
    """Return the gradient of `rows`, zeros where nothing depends on them."""
    return (torch.zeros_like(rows) if rows.grad is None else rows.grad).cpu().numpy()
