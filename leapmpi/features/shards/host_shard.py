"""Feature rows of this rank in host memory, and how a fetcher reads, packs and places them.

A shard covers one contiguous range of vertices, made of one or more parts, and finds rows by global vertex id.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from leapmpi.features.shards.row_request import RowCache, RowRequest
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.kernels.row_types import NO_SCALE, RowType, read_rows, row_type
from leapmpi.nn.rows import LEAST_WIDTH, Rows, ScatteredRows
from leapmpi.system.buffer_pool import BufferPool
from leapmpi.system.jit import compiled
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.system.worker_threads import share_rows

_LEAST_BYTES = 1 << 18
"""Fewer bytes are copied by the calling thread alone."""


@compiled
def _copy_rows(begin, end, source, rows, first, target, positions):
    width = source.shape[1]
    for i in range(begin, end):
        row, position = rows[i] - first, positions[i]
        for j in range(width):
            target[position, j] = source[row, j]


def place_rows(
    source: np.ndarray,
    rows: np.ndarray,
    first: int,
    target: np.ndarray,
    positions: np.ndarray,
    scale: np.ndarray | None = None,
) -> None:
    """Copy target[positions[i]] = source[rows[i] - first], converted to the target's type; `source` holds all rows.

    Rows of the target's own type are copied as they are, by all threads. No position occurs twice. `scale`: of int8,
    steps and middles of the columns.
    """
    if source.dtype == target.dtype:
        kind = f"u{source.itemsize}"  # numba has no half precision on processors: bits are moved
        least = max(1, _LEAST_BYTES // max(1, source.itemsize * source.shape[1]))
        share_rows(_copy_rows, len(rows), source.view(kind), rows, first, target.view(kind), positions, least=least)
    elif target.dtype.kind == "f" and source.flags.c_contiguous and row_type(source.dtype, scale):
        read_rows(source, rows - first, scale, target, positions)
    elif source.dtype == np.float16:
        target[positions] = source[rows - first]
    else:
        _copy_rows(0, len(rows), source, rows, first, target, positions)


class HostShard:
    """Rows in host memory: one (rows, width) array per part, in vertex order; mapped files cost no copy.

    `first` is the global id of the first row. One-dimensional arrays count as width 1. `scale`: of features in int8,
    float32[2, width], steps and middles of the columns.
    """

    scale: np.ndarray | None = None
    kind: RowType | None = None
    """Layout of the elements of features in memory; None for plain numbers of numpy."""

    def __init__(self, parts: Sequence[np.ndarray], first: int, scale: np.ndarray | None = None) -> None:
        arrays = [np.asarray(part) for part in parts]
        self._hold([each if each.ndim == 2 else each.reshape(-1, 1) for each in arrays], first)
        self.scale = None if scale is None else np.array(scale, np.float32)
        self.row_bytes = self.width * self.dtype.itemsize
        self.kind = row_type(self.dtype, self.scale)
        self.addressable = self.kind is not None and all(part.flags.c_contiguous for part in self.parts)
        """Whether kernels can read every row in place, element after element."""

    @property
    def resident_bytes(self) -> int:
        """Bytes of memory that the rows take; of mapped files, once all have been read."""
        return self.nbytes

    def _hold(self, parts: list[Any], first: int) -> None:
        self.parts = parts
        """By part, its rows: arrays here, SparseFeatures in a SparseShard."""
        self.bounds = first + np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(np.int64)
        self.width: int = parts[0].shape[1]
        self.dtype: np.dtype = parts[0].dtype
        self.nbytes: int = sum(part.nbytes for part in parts)

    @property
    def in_place(self) -> bool:
        """Whether `whole` gives the rows."""
        if len(self.parts) > 1:
            return self.addressable and self.dtype == np.float32 and self.width >= LEAST_WIDTH
        return self.dtype.byteorder != ">" and self.dtype != np.uint16

    def whole(self) -> Rows | None:
        """Return all rows (rows, width), read-only, on shared memory; None where kernels cannot read them.

        A tensor; of several parts, which may be anywhere, their addresses.
        """
        if not self.in_place:
            return None
        if len(self.parts) > 1:
            return self.scattered(self._addresses, self)
        with warnings.catch_warnings():
            # Mapped files are read-only, which torch cannot express.
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(self.parts[0])

    @cached_property
    def _addresses(self) -> np.ndarray:
        """int64[rows]: the address of each row."""
        return np.concatenate([_addresses(part, np.arange(len(part))) for part in self.parts])

    def split(self, ids: np.ndarray) -> Iterator[tuple[Any, int, np.ndarray, np.ndarray]]:
        """Yield the part, its first id, the ids in it and their positions in `ids`, for each part that `ids` touch.

        ids: int64[k], all in this shard.
        """
        if len(self.parts) == 1:
            yield self.parts[0], int(self.bounds[0]), ids, np.arange(len(ids))
            return
        # Group the ids by part; a stable sort keeps their order within a part.
        part_of = np.searchsorted(self.bounds, ids, side="right") - 1
        order = np.argsort(part_of, kind="stable")
        ends = np.cumsum(np.bincount(part_of, minlength=len(self.parts)))
        for number in np.unique(part_of).tolist():
            positions = order[ends[number - 1] if number else 0 : ends[number]]
            yield self.parts[number], int(self.bounds[number]), ids[positions], positions

    def place(self, ids: np.ndarray, target: np.ndarray, positions: np.ndarray) -> None:
        """Copy target[positions[i]] = the row of vertex ids[i]; ids int64[k], all in this shard."""
        for part, first, chosen, where in self.split(ids):
            place_rows(part, chosen, first, target, positions[where], self.scale)

    def locate(self, ids: np.ndarray, addresses: np.ndarray, positions: np.ndarray) -> None:
        """Write addresses[positions[i]] = the address of the row of vertex ids[i]; ids int64[k], all in this shard."""
        numbers = ids - self.bounds[0]
        if len(self.parts) == 1:
            addresses[positions] = _addresses(self.parts[0], numbers)
        else:
            addresses[positions] = self._addresses[numbers]

    def scattered(self, addresses: np.ndarray, *sources: object) -> ScatteredRows:
        """View the rows at `addresses` int64[k], of the stored type, in the memory of `sources`."""
        assert self.kind is not None, "the shard is addressable"
        scale = NO_SCALE if self.scale is None else self.scale
        return ScatteredRows(torch.from_numpy(addresses), self.width, sources, self.kind, scale)

    def rows(self, ids: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Write the rows of `ids`, in order, to `out` (len(ids), width)."""
        self.place(ids, out, np.arange(len(ids)))
        return out

    def new_rows(self, count: int) -> np.ndarray:
        """Allocate `count` rows of the stored type; their values are arbitrary."""
        return np.empty((count, self.width), self.dtype)


@dataclass
class HostRows:
    """The local half of a fetch from a HostShard: packs rows for others, and puts all rows of a request in one tensor.

    Tensors are of `dtype` on `device`; for a GPU the rows are put in pinned memory and copied there at once. The time
    of copying rows counts as the phase "gather". Nothing here is collective.
    """

    shard: HostShard
    device: torch.device
    dtype: torch.dtype
    phases: PhaseTimers
    _sent: BufferPool = field(default_factory=BufferPool)
    _arriving: BufferPool = field(default_factory=BufferPool)
    _rows: BufferPool = field(default_factory=BufferPool)

    def local(self, ids: np.ndarray) -> torch.Tensor:
        """Return the rows of `ids` (int64[k], all in the shard, repeats allowed) as a tensor (k, width)."""
        with self.phases("gather"):
            rows = self._new_tensor(len(ids))
            self.shard.rows(ids, rows.numpy())
            return rows.to(self.device)

    def pack(self, ids: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Pack the rows of `ids` for sending, in the stored type; also return memory for `count` rows that arrive."""
        sent, arriving = self.room(len(ids), count)
        with self.phases("gather"):
            self.shard.rows(ids, sent)
        return sent, arriving

    def room(self, sent: int, arriving: int) -> tuple[np.ndarray, np.ndarray]:
        """Return memory for `sent` rows that leave and for `arriving` ones, in the stored type."""
        width, dtype = self.shard.width, self.shard.dtype
        return self._sent.array((sent, width), dtype), self._arriving.array((arriving, width), dtype)

    def collect(self, request: RowRequest, arrived: np.ndarray, cache: RowCache | None) -> torch.Tensor:
        """Collect the rows of `request` as a tensor (k, width), from this shard, from `arrived` and from `cache`."""
        with self.phases("gather"):
            rows = self._new_tensor(len(request.ids))
            target = rows.numpy()

            # Local rows; then remote ones, in order of the request's remote ids.
            self.shard.place(request.local_ids, target, request.local_positions)
            place_rows(arrived, np.arange(len(arrived)), 0, target, request.remote_positions, self.shard.scale)
            if cache:
                assert isinstance(cache.rows, np.ndarray), "cached rows are where the shard is"
                place_rows(cache.rows, request.cached_slots, 0, target, request.cached_positions, self.shard.scale)
        return rows if on_host(self.device) else torch.empty_like(rows, device=self.device).copy_(rows)

    def collect_addresses(self, request: RowRequest, arrived: np.ndarray, cache: RowCache | None) -> ScatteredRows:
        """Collect as `collect`, but as addresses, without copies. Only where the shard is `addressable`."""
        addresses = np.empty(len(request.ids), np.int64)
        with self.phases("gather"):
            self.shard.locate(request.local_ids, addresses, request.local_positions)
            addresses[request.remote_positions] = _addresses(arrived, np.arange(len(arrived)))
            if cache:
                assert isinstance(cache.rows, np.ndarray), "cached rows are where the shard is"
                addresses[request.cached_positions] = _addresses(cache.rows, request.cached_slots)
        # What the addresses point to must live as long as they do.
        return self.shard.scattered(addresses, self.shard, arrived, cache)

    def local_addresses(self, ids: np.ndarray) -> ScatteredRows:
        """Return rows as `local`, but as addresses, without copies. Only where the shard is `addressable`."""
        addresses = np.empty(len(ids), np.int64)
        self.shard.locate(ids, addresses, np.arange(len(ids)))
        return self.shard.scattered(addresses, self.shard)

    def warm_up(self) -> None:
        """Compile the kernels of a fetch by moving one local row."""
        # Every path of a fetch once: packed rows, placed rows, and rows that arrive.
        ids, position = np.array([int(self.shard.bounds[0])]), np.zeros(1, np.int64)
        row = self.shard.rows(ids, self.shard.new_rows(1))
        target = self._new_tensor(1).numpy()
        self.shard.place(ids, target, position)
        place_rows(row, position, 0, target, position)

    def dummy_addresses(self, count: int, width: int) -> ScatteredRows:
        """Return addresses of `count` rows of `width` zeros of the stored type, to compile and to measure with."""
        rows = np.zeros((count, width), self.shard.dtype)
        found = self.shard.scattered(_addresses(rows, np.arange(count)), rows)
        scale = np.zeros((2, width if found.kind.scaled else 0), np.float32)
        return replace(found, width=width, scale=scale)

    def _new_tensor(self, count: int) -> torch.Tensor:
        """Allocate `count` unfilled rows in host memory: reused memory for the CPU, pinned memory for a GPU."""
        if on_host(self.device):
            name = str(self.dtype).removeprefix("torch.")
            return torch.from_numpy(self._rows.array((count, self.shard.width), name))
        return torch.empty((count, self.shard.width), dtype=self.dtype, pin_memory=self.device.type == "cuda")


def _addresses(source: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the addresses int64[k] of the rows numbered `rows` (integers[k]) of `source`, which is C-contiguous."""
    return source.ctypes.data + source.strides[0] * rows.astype(np.int64, copy=False)
