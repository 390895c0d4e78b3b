"""Rows of any vertices, wherever they are at home: own and cached rows in place, others' rows through the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.comm.id_codec import IdCodec
from leapmpi.features.cache import RowCache
from leapmpi.features.compression import RowEncoding, RowErrors
from leapmpi.features.row_exchange import RowExchange
from leapmpi.features.row_request import RowRequest
from leapmpi.features.shard import DeviceShard, HostShard, place_rows
from leapmpi.plan.homes import home_of
from leapmpi.system.buffer_pool import BufferPool
from leapmpi.system.phase_timers import PhaseTimers

_PIECE = 32 << 20
"""Bytes of rows that a rank asks for at once when it fills its cache."""


class FeatureFetcher:
    """Fetches rows of one shard that is spread over the ranks.

    Args:
        wire: the way to the other ranks.
        shard: this rank's rows.
        rank_offsets: int64[ranks + 1], the range of vertices at home on each rank.
        device: torch.device on which rows are wanted.
        dtype: torch dtype in which rows are wanted.
        kind: how the ledger names the bytes; rows are counted when it is "features".
        phases: clock on which copying rows counts as "gather".
        encoding: how rows cross ranks when `fetch` may lose precision; otherwise in the type they have at rest.

    Rows are dense here; leapmpi/features/sparse_fetcher.py has its like for sparse ones.

    `cache` holds copies of others' rows once `fill` has brought them; `errors` counts what `encoding` lost.
    """

    sparse = False

    def __init__(
        self,
        communicator: Communicator,
        shard: HostShard | DeviceShard,
        rank_offsets: np.ndarray,
        device: Any,
        dtype: Any,
        kind: str = "features",
        phases: PhaseTimers | None = None,
        encoding: RowEncoding | None = None,
    ) -> None:
        self.communicator, self.shard, self.rank_offsets = communicator, shard, rank_offsets
        self.device, self.dtype, self.kind = device, dtype, kind
        self.phases = phases or PhaseTimers()
        self.encoding, self.errors = encoding, RowErrors()
        self.cache: RowCache | None = None
        self.ranges = IdCodec.at_home(rank_offsets)
        self._sent, self._arriving, self._rows = BufferPool(), BufferPool(), BufferPool()

    def fetch(self, ids: np.ndarray, exact: bool = False) -> Any:
        """The rows of distinct `ids` (int64[k], any order) as a tensor (k, width) on the device. Collective.

        `exact`, which all ranks give alike, has them cross ranks as they are at rest whatever the encoding.
        """
        return self.prepare(ids, exact).complete()

    def prepare(self, ids: np.ndarray, exact: bool = False, scattered: bool = False) -> RowExchange:
        """All of `fetch` but to move the rows: they are asked for, and those that others want packed. Collective.

        `scattered`, where `scatters` says that it may be, has them given as ScatteredRows, none of which is copied.
        """
        request = self.request(ids)
        self._count_rows(request)
        encoding = None if exact else self.encoding
        together = self._where_they_lie if scattered and self.scatters else self._together
        return self._packed(request, encoding, partial(together, request, encoding))

    def _packed(self, request: RowRequest, encoding: RowEncoding | None, unpack: Callable[[Any], Any]) -> RowExchange:
        """The rows that others want of this one's, and room for the remote ones of `request`, which arrive encoded, or
        as they are at rest, in order of its remote ids. Collective."""
        wanted, counts = self._wanted(request)
        on_device = isinstance(self.shard, DeviceShard)
        sent, arriving = (self._room_on_device if on_device else self._room_on_host)(wanted, request, encoding)
        return RowExchange(self.communicator, self.kind, (sent, counts), (arriving, request.remote_counts), unpack)

    def _together(self, request: RowRequest, encoding: RowEncoding | None, arrived: Any) -> Any:
        """The rows of `request` from those that have `arrived` and those that are here. Local."""
        place = self._rows_on_device if isinstance(self.shard, DeviceShard) else self._rows_on_host
        return place(request, arrived, encoding)

    def _count_rows(self, request: RowRequest) -> None:
        if self.kind == "features":
            self.communicator.byte_counters.add_rows("local", len(request.own_ids))
            self.communicator.byte_counters.add_rows("remote", len(request.remote_ids))
            self.communicator.byte_counters.add_rows("cached", len(request.cached_slots))

    def own(self, ids: np.ndarray, scattered: bool = False) -> Any:
        """The rows of `ids` (int64[k], all at home here, repeats allowed) as a tensor (k, width). Local.

        `scattered`, where `scatters` says that it may be, has them given as ScatteredRows, none of which is copied.
        """
        if scattered and self.scatters:
            addresses = np.empty(len(ids), np.int64)
            self.shard.locate(ids, addresses, np.arange(len(ids)))
            return self._scattered(addresses, self.shard)
        with self.phases("gather"):
            if isinstance(self.shard, DeviceShard):
                return self.shard.rows(ids).to(self.dtype)
            rows = self._host_rows(len(ids), self.shard.width)
            self.shard.rows(ids, rows.numpy())
            return rows.to(self.device)

    @cached_property
    def whole(self) -> Any:
        """All rows at home here, in place, as a tensor (k, width) to be read only.

        None where they do not lie together on the device, or not in the wanted type.
        """
        rows = self.shard.whole()
        fits = rows is not None and rows.dtype == self.dtype and rows.device.type == self.device.type
        return rows if fits else None

    @cached_property
    def scatters(self) -> bool:
        """Whether rows can be read where they lie, one here and one there: in single precision on the host."""
        from leapmpi.nn.scattered_rows import LEAST_WIDTH

        wanted = self.device.type == "cpu" and str(self.dtype) == "torch.float32" and not self.sparse
        shard = self.shard
        return wanted and isinstance(shard, HostShard) and shard.width >= LEAST_WIDTH and shard.addressable

    def request(self, ids: np.ndarray) -> RowRequest:
        """Where the rows of distinct `ids` are. Local."""
        slots = self.cache.slots(ids) if self.cache else None
        return RowRequest(ids, self.rank_offsets, self.communicator.rank, slots)

    def missing(self, ids: np.ndarray) -> int:
        """How many of distinct `ids` a fetch asks other ranks for. Local."""
        away = home_of(ids, self.rank_offsets) != self.communicator.rank
        return int((away & (self.cache.slots(ids) < 0)).sum() if self.cache else away.sum())

    @property
    def sent_row_bytes(self) -> int:
        """Bytes of a row that crosses ranks in training."""
        return self.encoding.row_bytes(self.shard.width) if self.encoding else self.shard.row_bytes

    @property
    def held_row_bytes(self) -> int:
        """Bytes of a row as it is wanted."""
        return self.shard.width * self.dtype.itemsize

    def cached_bytes(self, cache: RowCache) -> int:
        """Bytes of the rows of `cache`, and of the table of their places."""
        return cache.held_bytes(self.shard.row_bytes)

    def answer_bytes(self, request: RowRequest, exact: bool = False) -> np.ndarray:
        """int64[ranks]: bytes of the rows that come from each rank; `exact` as in `fetch`. Local."""
        return request.remote_counts * (self.shard.row_bytes if exact else self.sent_row_bytes)

    def stand_in(self, count: int, width: int, scattered: bool = False) -> Any:
        """`count` rows as good as any, of `width` columns, to compile and to measure with: what they hold does not
        matter. Local."""
        import torch

        from leapmpi.nn.scattered_rows import LEAST_WIDTH, ScatteredRows

        if scattered and self.scatters and width >= LEAST_WIDTH:
            rows = np.zeros((count, width), np.float32)
            addresses = np.empty(count, np.int64)
            _locate(rows, np.arange(count), addresses, np.arange(count))
            return ScatteredRows(torch.from_numpy(addresses), width, (rows,))
        return torch.zeros((count, width), dtype=self.dtype, device=self.device)

    def fill(self, cache: RowCache) -> None:
        """Bring the rows of `cache` here as they are at rest, a bounded number of bytes at a time. Collective."""
        self.cache = None
        cache.make_room(self.shard)
        for place, request in self._pieces(cache):
            self._packed(request, None, partial(cache.rows.__setitem__, place)).complete()
        self.cache = cache

    def _pieces(self, cache: RowCache) -> Iterator[tuple[slice, RowRequest]]:
        """Bounded requests for all rows of `cache`, as many on every rank, and their places in it. Collective."""
        step = max(1, _PIECE // self.shard.row_bytes)
        pieces = self.communicator.all_gather_rows(np.array([-(-len(cache.ids) // step)])).max()
        for number in range(pieces):
            place = slice(number * step, (number + 1) * step)
            yield place, RowRequest(cache.ids[place], self.rank_offsets, self.communicator.rank)

    def warm_up(self) -> None:
        """Compile what `fetch` will run, by moving one own row about. Local."""
        if isinstance(self.shard, DeviceShard):
            return
        first, width = int(self.shard.bounds[0]), self.shard.width
        ids, place = np.array([first]), np.zeros(1, np.int64)
        row = self.shard.rows(ids, np.empty((1, width), self.shard.dtype))
        target = self._host_rows(1, width).numpy()
        self.shard.place(ids, target, place)
        place_rows(row, place, 0, target, place)
        if self.encoding:
            encoded = np.empty((1, self.sent_row_bytes), np.uint8)
            self.encoding.decode(self.encoding.encode(self.shard, ids, encoded, RowErrors()), target, place)

    def _room_on_host(
        self, wanted: np.ndarray, request: RowRequest, encoding: RowEncoding | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The `wanted` rows, packed, and room for those of `request`. Local."""
        shard = self.shard
        width, dtype = (encoding.row_bytes(shard.width), "uint8") if encoding else (shard.width, shard.dtype)
        with self.phases("gather"):
            packed = self._sent.array((len(wanted), width), dtype)
            if encoding:
                encoding.encode(shard, wanted, packed, self.errors)
            else:
                shard.rows(wanted, packed)
        return packed, self._arriving.array((len(request.remote_ids), width), dtype)

    def _rows_on_host(self, request: RowRequest, arrived: np.ndarray, encoding: RowEncoding | None) -> Any:
        import torch

        with self.phases("gather"):
            rows = self._host_rows(len(request.ids), self.shard.width)
            target = rows.numpy()
            self.shard.place(request.own_ids, target, request.own_positions)
            if encoding:
                encoding.decode(arrived, target, request.remote_positions)
            else:
                place_rows(arrived, np.arange(len(arrived)), 0, target, request.remote_positions)
            if self.cache:
                place_rows(self.cache.rows, request.cached_slots, 0, target, request.cached_positions)
        return rows if self.device.type == "cpu" else torch.empty_like(rows, device=self.device).copy_(rows)

    def _where_they_lie(self, request: RowRequest, encoding: RowEncoding | None, arrived: np.ndarray) -> Any:
        """As `_together`, but no row is copied."""
        addresses = np.empty(len(request.ids), np.int64)
        with self.phases("gather"):
            if encoding:
                encoded, arrived = arrived, self._rows.array((len(arrived), self.shard.width), "float32")
                encoding.decode(encoded, arrived, np.arange(len(arrived)))
            self.shard.locate(request.own_ids, addresses, request.own_positions)
            _locate(arrived, np.arange(len(arrived)), addresses, request.remote_positions)
            if self.cache:
                _locate(self.cache.rows, request.cached_slots, addresses, request.cached_positions)
        return self._scattered(addresses, self.shard, arrived, self.cache)

    def _scattered(self, addresses: np.ndarray, *sources: Any) -> Any:
        import torch

        from leapmpi.nn.scattered_rows import ScatteredRows

        return ScatteredRows(torch.from_numpy(addresses), self.shard.width, sources)

    def _wanted(self, request: RowRequest) -> tuple[np.ndarray, np.ndarray]:
        """The ids that others want of this rank, and how many each wants. Collective."""
        return self.communicator.exchange_ids(request.remote_ids, request.remote_counts, self.ranges)

    def _host_rows(self, count: int, width: int) -> Any:
        import torch

        name = str(self.dtype).removeprefix("torch.")
        if self.device.type == "cpu":
            return torch.from_numpy(self._rows.array((count, width), name))
        return torch.empty((count, width), dtype=self.dtype, pin_memory=True)

    def _room_on_device(self, wanted: np.ndarray, request: RowRequest, encoding: RowEncoding | None) -> tuple[Any, Any]:
        """As `_room_on_host`. Local."""
        packed = self.shard.rows(wanted)
        if encoding:
            packed = encoding.encode_tensor(packed, self.errors)
        return packed, packed.new_empty((len(request.remote_ids), packed.shape[1]))

    def _rows_on_device(self, request: RowRequest, arrived: Any, encoding: RowEncoding | None) -> Any:
        import torch

        if encoding:
            arrived = encoding.decode_tensor(arrived)
        rows = torch.empty((len(request.ids), self.shard.width), dtype=self.dtype, device=self.device)
        rows[torch.from_numpy(request.own_positions).to(self.device)] = self.shard.rows(request.own_ids).to(self.dtype)
        rows[torch.from_numpy(request.remote_positions).to(self.device)] = arrived.to(self.dtype)
        if self.cache:
            slots = torch.from_numpy(request.cached_slots).long().to(self.device)
            rows[torch.from_numpy(request.cached_positions).to(self.device)] = self.cache.rows[slots].to(self.dtype)
        return rows


def _locate(source: np.ndarray, rows: np.ndarray, addresses: np.ndarray, positions: np.ndarray) -> None:
    """addresses[positions[i]] = that of row rows[i] of `source`, which is C-contiguous."""
    addresses[positions] = source.ctypes.data + source.strides[0] * rows.astype(np.int64, copy=False)
