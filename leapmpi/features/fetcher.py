"""Rows of any vertices: local and cached rows are read in place, remote rows come from their home ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import torch

from leapmpi.comm.communicator import Communicator
from leapmpi.comm.id_codec import IdCodec
from leapmpi.features.learned_rows import LearnedRows
from leapmpi.features.row_exchange import RowExchange
from leapmpi.features.shards.device_shard import DeviceRows, DeviceShard
from leapmpi.features.shards.host_shard import HostRows, HostShard
from leapmpi.features.shards.row_request import RowCache, RowRequest
from leapmpi.features.shards.staged_rows import StagedRows
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.rows import LEAST_WIDTH, Rows
from leapmpi.system.phase_timers import PhaseTimers

CACHE_BATCH_BYTES = 32 << 20
"""Bytes of rows that a rank requests at a time when it fills its cache."""


class FeatureFetcher:
    """Fetches dense rows of features or labels that are spread over the ranks.

    Args:
        communicator: connects this rank with the others.
        shard: this rank's rows.
        rank_offsets: int64[ranks + 1], the range of vertices of each rank.
        device: where the tensors that a fetch returns are, of `dtype`.
        kind: the kind under which bytes are counted; rows are counted when it is "features".

    Rows are sent in the stored type. `cache` holds copies of remote rows once `fill` has brought them.
    """

    sparse = False
    learned: LearnedRows | None = None
    """The rows, where training moves them."""
    returned_row_bytes = 0
    """Bytes of the gradient of a remote row, which goes back to its home."""

    def __init__(
        self,
        communicator: Communicator,
        shard: HostShard | DeviceShard,
        rank_offsets: np.ndarray,
        device: torch.device,
        dtype: torch.dtype,
        kind: str = "features",
        phases: PhaseTimers | None = None,
    ) -> None:
        self.communicator = communicator
        self.shard = shard
        self.rank_offsets = rank_offsets
        self.device = device
        self.dtype = dtype
        self.kind = kind
        self.phases = phases or PhaseTimers()
        # `fill` sets it, once training has chosen the rows.
        self.cache: RowCache | None = None
        self.id_codec = IdCodec.home_ranks(rank_offsets)
        self._local_half: HostRows | DeviceRows
        if isinstance(shard, HostShard):
            # Rows in host memory reach a GPU through pinned buffers; those on a device never leave it.
            half = HostRows if on_host(device) else StagedRows
            self._local_half = half(shard, device, dtype, self.phases)
        else:
            self._local_half = DeviceRows(shard, device, dtype, self.phases)

    def holding(self, shard: HostShard | DeviceShard, rank_offsets: np.ndarray) -> Self:
        """Return a fetcher of other rows of the same kind and type, of the vertices that `rank_offsets` says."""
        rows = self.communicator, shard, rank_offsets, self.device, self.dtype
        return type(self)(*rows, self.kind, self.phases)

    def fetch(self, ids: np.ndarray) -> Rows:
        """Fetch the rows of distinct `ids` (int64[k], any order) as a tensor (k, width) on the device. Collective."""
        return self.prepare(ids).complete()

    def prepare(self, ids: np.ndarray, scattered: bool = False, trains: bool = False) -> RowExchange:
        """Do the first half of `fetch`: exchange the ids, pack the rows that others requested. Collective.

        The rows move when the result is begun. With `scattered`, where `scatters` allows it, they come as
        ScatteredRows and none is copied. `trains`: gradients of the rows follow, where rows are learned.
        """
        request = self.request(ids)
        if self.kind == "features":
            self.communicator.byte_counters.add({}, request.read_counts)
        return self._exchange(request, partial(self._collect, request, scattered and self.scatters))

    def local(self, ids: np.ndarray, scattered: bool = False) -> Rows:
        """Return the rows of `ids` (int64[k], all local, repeats allowed) as a tensor; `scattered` as in `prepare`.

        Local.
        """
        if scattered and self.scatters:
            assert isinstance(self._local_half, HostRows), "rows that have addresses are in host memory"
            return self._local_half.local_addresses(ids)
        return self._local_half.local(ids)

    @cached_property
    def in_place(self) -> bool:
        """Whether all local rows can be read in place: on the device, in `dtype`."""
        shard = self.shard
        if isinstance(shard, DeviceShard):
            return shard.values.dtype == self.dtype
        return shard.in_place and self.device.type == "cpu" and f"torch.{shard.dtype}" == str(self.dtype)

    @cached_property
    def whole(self) -> Rows | None:
        """All local rows (rows, width), read-only and without a copy; None unless they are `in_place`."""
        return self.shard.whole() if self.in_place else None

    @cached_property
    def scatters(self) -> bool:
        """Whether rows can be read from their addresses, without a copy, as float32: rows in host memory."""
        if self.sparse or not on_host(self.device) or str(self.dtype) != "torch.float32":
            return False
        return self.shard.width >= LEAST_WIDTH and self.shard.addressable

    def request(self, ids: np.ndarray) -> RowRequest:
        """Locate the rows of distinct `ids` (int64[k]). Local."""
        slots = self.cache.slots(ids) if self.cache else None
        return RowRequest(ids, self.rank_offsets, self.communicator.rank, slots)

    def missing(self, ids: np.ndarray) -> int:
        """Count the rows that a fetch of distinct `ids` (int64[k]) requests from other ranks. Local."""
        return len(self.request(ids).remote_ids)

    @property
    def sent_row_bytes(self) -> int:
        """Bytes of a row that is sent."""
        return self.shard.row_bytes

    @property
    def held_row_bytes(self) -> int:
        """Bytes of a row of the tensors that a fetch returns."""
        return self.shard.width * self.dtype.itemsize

    def cached_bytes(self, cache: RowCache) -> int:
        """Return the bytes of the rows of `cache` and of its lookup table."""
        return cache.held_bytes(self.shard.row_bytes)

    def answer_bytes(self, request: RowRequest) -> np.ndarray:
        """Return the bytes of the rows of `request` that each rank sends: int64[ranks]. Local."""
        return request.remote_counts * self.sent_row_bytes

    def returned_bytes(self, request: RowRequest) -> int:
        """Return the bytes of the gradients that go back for the remote rows of `request`. Local."""
        return len(request.remote_ids) * self.returned_row_bytes

    def dummy_rows(self, count: int, width: int, scattered: bool = False) -> Rows:
        """Return `count` rows of `width` zeros, to compile and to measure with. `scattered` as in `fetch`. Local."""
        if scattered and self.scatters and width >= LEAST_WIDTH:
            assert isinstance(self._local_half, HostRows), "rows that have addresses are in host memory"
            return self._local_half.dummy_addresses(count, width)
        return torch.zeros((count, width), dtype=self.dtype, device=self.device)

    def count_returns(self, exchange: RowExchange) -> None:
        """Count what gradients of rows of `exchange` send, where rows are learned. Local: nothing is sent."""

    def fill(self, cache: RowCache) -> None:
        """Fetch the rows of `cache` in the stored type, CACHE_BATCH_BYTES at a time. Collective."""
        self.cache = None
        cache.rows = self.shard.new_rows(len(cache.ids))
        for slots, request in self._cache_requests(cache):
            self._exchange(request, partial(cache.rows.__setitem__, slots)).complete()
        self.cache = cache

    def warm_up(self) -> None:
        """Compile the kernels that `fetch` runs, by moving one local row. Local."""
        self._local_half.warm_up()

    def _exchange(self, request: RowRequest, unpack: Callable[[Any], Any]) -> RowExchange:
        """Exchange ids and pack the rows that others requested. Collective.

        The remote rows of `request` will arrive in order of its remote ids, in the stored type.
        """
        requested, counts = self.communicator.exchange_ids(request.remote_ids, request.remote_counts, self.id_codec)
        wanted = len(request.remote_ids)
        if self.communicator.carries:
            sent, arriving, pack = self._sending(requested, wanted)
        else:
            sent, arriving, pack = self.shard.new_rows(len(requested)), self.shard.new_rows(wanted), None
        arrives, asked = (arriving, request.remote_counts), (request, requested, counts)
        return RowExchange(self.communicator, self.kind, (sent, counts), arrives, unpack, asked, pack)

    def _sending(self, requested: np.ndarray, wanted: int) -> tuple[Any, Any, Callable[[], object] | None]:
        """Pack the rows of `requested`, and return memory for `wanted` ones; then what packs them when they leave."""
        return *self._local_half.pack(requested, wanted), None

    def _collect(self, request: RowRequest, scattered: bool, arrived: Any) -> Rows:
        """Collect the rows of `request`: local, cached and those that have `arrived`; without copies if `scattered`.

        Local.
        """
        if not self.communicator.carries:
            return self.dummy_rows(len(request.ids), self.shard.width)
        if not scattered:
            return self._local_half.collect(request, arrived, self.cache)
        assert isinstance(self._local_half, HostRows), "rows that have addresses are in host memory"
        return self._local_half.collect_addresses(request, arrived, self.cache)

    def _cache_requests(self, cache: RowCache) -> Iterator[tuple[slice, RowRequest]]:
        """Yield requests of bounded size for all rows of `cache`, as many on every rank, and their slots.

        Collective.
        """
        step = max(1, CACHE_BATCH_BYTES // self.shard.row_bytes)
        requests = self.communicator.all_gather_rows(np.array([-(-len(cache.ids) // step)])).max()
        for number in range(requests):
            slots = slice(number * step, (number + 1) * step)
            yield slots, RowRequest(cache.ids[slots], self.rank_offsets, self.communicator.rank)
