"""Fetchers of sparse and of learned rows, and the choice among all fetchers.

Of sparse rows entries are sent, and sparse matrices are returned. All ranks know the number of entries of each row, so
one exchange moves rows of any length. Rows stay in host memory until they become a matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leapmpi.dataset.sparse_features import INDEX_BYTES, SparseFeatures, joined
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.learned_rows import LearnedShard
from leapmpi.features.row_exchange import Requested, RowExchange
from leapmpi.features.shards.device_shard import DeviceShard
from leapmpi.features.shards.host_shard import HostRows, HostShard
from leapmpi.features.shards.row_request import RowCache, RowRequest
from leapmpi.features.shards.sparse_shard import SparseShard, empty_rows, place_entries
from leapmpi.features.typed_fetcher import TypedFetcher
from leapmpi.features.typed_shard import TypedShard
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.rows import SparseMatrix
from leapmpi.nn.tensors import Edges
from leapmpi.system.buffer_pool import BufferPool


class SparseFeatureFetcher(FeatureFetcher):
    """Fetches rows of a SparseShard as SparseMatrix."""

    shard: SparseShard
    sparse = True

    @cached_property
    def _arriving(self) -> BufferPool:
        """Room for entries that arrive, kept between mini-batches."""
        return BufferPool()

    def local(self, ids: np.ndarray, scattered: bool = False) -> SparseMatrix:
        """Return the rows of `ids` (int64[k], all local, repeats allowed), always a copy. Local."""
        with self.phases("gather"):
            return self._matrix(self.shard.take(ids))

    @property
    def sent_row_bytes(self) -> int:
        return max(1, round(self.shard.mean_entries * self.shard.entry_bytes))

    @property
    def held_row_bytes(self) -> int:
        """Bytes of a row as the first layer reads it, on average."""
        return 8 + round(self.shard.mean_entries * (INDEX_BYTES + self.dtype.itemsize))

    def cached_bytes(self, cache: RowCache) -> int:
        entries = int(self.shard.entry_counts[cache.ids].sum(dtype=np.int64))
        return cache.held_bytes(0) + entries * self.shard.entry_bytes + 8 * (len(cache.ids) + 1)

    def answer_bytes(self, request: RowRequest) -> np.ndarray:
        return self._entries_by_rank(request.remote_ids, request.remote_counts) * self.shard.entry_bytes

    def dummy_rows(self, count: int, width: int, scattered: bool = False) -> SparseMatrix:
        """Repeat the first `width` columns of local rows: the number of entries per row matters. Local."""
        first, end = int(self.shard.bounds[0]), int(self.shard.bounds[-1])
        rows = self.shard.take(first + np.arange(count, dtype=np.int64) % max(1, end - first))
        return self._matrix(rows if width == rows.width else rows.columns(0, width))

    def fill(self, cache: RowCache) -> None:
        """Fetch the rows of `cache` in the stored type, CACHE_BATCH_BYTES at a time. Collective."""
        self.cache = None
        # An empty block first: a cache may hold no rows.
        blocks = [empty_rows(np.empty(0, np.int64), self.shard.parts[0])]
        for _, request in self._cache_requests(cache):
            blocks.append(self._exchange(request, partial(self._remote_rows, request)).complete())
        cache.rows = joined(blocks)
        self.cache = cache

    def warm_up(self) -> None:
        row = self.shard.take(np.array([self.shard.bounds[0]]))
        self._matrix(_unpack(_pack(row), row, np.diff(row.indptr)))

    def _exchange(self, request: RowRequest, unpack: Callable[[Any], Any]) -> RowExchange:
        requested, row_counts = self.communicator.exchange_ids(request.remote_ids, request.remote_counts, self.id_codec)
        entry_counts = self._entries_by_rank(requested, row_counts)
        with self.phases("gather"):
            if self.communicator.carries:
                sent = _pack(self.shard.take(requested))
            else:
                sent = np.empty((int(entry_counts.sum()), self.shard.entry_bytes), np.uint8)
        arriving_counts = self._entries_by_rank(request.remote_ids, request.remote_counts)
        arriving = self._arriving.array((int(arriving_counts.sum()), self.shard.entry_bytes), "uint8")
        return RowExchange(self.communicator, self.kind, (sent, entry_counts), (arriving, arriving_counts), unpack)

    def _collect(self, request: RowRequest, scattered: bool, arrived: np.ndarray) -> SparseMatrix:
        with self.phases("gather"):
            remote = self._remote_rows(request, arrived)
            rows = empty_rows(self.shard.entry_counts[request.ids], remote)
            self.shard.place_entries(request.local_ids, rows, request.local_positions)
            place_entries(remote, np.arange(len(remote)), rows, request.remote_positions)
            if self.cache:
                assert isinstance(self.cache.rows, SparseFeatures), "`fill` has filled it"
                place_entries(self.cache.rows, request.cached_slots.astype(np.int64), rows, request.cached_positions)
            return self._matrix(rows)

    def _remote_rows(self, request: RowRequest, arrived: np.ndarray) -> SparseFeatures:
        """Unpack the remote rows of `request` in order of its remote ids, from what has `arrived`. Local."""
        return _unpack(arrived, self.shard.parts[0], self.shard.entry_counts[request.remote_ids])

    def _entries_by_rank(self, ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Count the entries of the rows of `ids`, by rank, `counts` (int64[ranks]) of each: int64[ranks]."""
        ends = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self.shard.entry_counts[ids], out=ends[1:])
        return np.diff(ends[np.concatenate(([0], np.cumsum(counts)))])

    def _matrix(self, rows: SparseFeatures) -> SparseMatrix:
        indptr, indices, values = (torch.from_numpy(each) for each in (rows.indptr, rows.indices, rows.data))
        if not on_host(self.device):
            # Operations of torch on a device take 64-bit columns.
            indices = indices.long()
        entries = Edges(indptr.to(self.device), indices.to(self.device), rows.width)
        return SparseMatrix(entries, values.to(self.device).to(self.dtype))


class LearnedFetcher(FeatureFetcher):
    """Fetches rows of a LearnedShard and records what training reads, so that gradients reach the owners.

    Training sets `learned`; a forecast reads no row.
    """

    @cached_property
    def returned_row_bytes(self) -> int:  # type: ignore[override]
        """Bytes of the gradient of a remote row: those of the row."""
        return self.shard.row_bytes

    def prepare(self, ids: np.ndarray, scattered: bool = False, trains: bool = False) -> RowExchange:
        """Prepare as for other rows, copied; with `trains` record the reads of an iteration of training."""
        # Never scattered: addresses of rows that change would show later values.
        exchange = super().prepare(ids)
        if trains:
            exchange.result_of = partial(self._noted, exchange.requested, exchange.result_of)
        return exchange

    def _sending(self, requested: np.ndarray, wanted: int) -> tuple[Any, Any, Callable[[], object] | None]:
        """Return room for rows that leave, and their packing: steps may move them until then."""
        half = self._local_half
        assert isinstance(half, HostRows), "learned rows are in host memory"
        sent, arriving = half.room(len(requested), wanted)

        def pack() -> None:
            with self.phases("gather"):
                half.shard.rows(requested, sent)

        return sent, arriving, pack

    def count_returns(self, exchange: RowExchange) -> None:
        assert exchange.requested is not None, "the fetcher made it"
        request, _, _ = exchange.requested
        self.communicator.count("row gradients", request.remote_counts, self.returned_row_bytes)

    def _noted(self, requested: Requested, result_of: Any, arrived: Any) -> Tensor:
        rows: Tensor = result_of(arrived)
        assert self.learned is not None, "a job trains"
        assert requested is not None, "the fetcher made it"
        self.learned.fetched(*requested, rows)
        return rows

    def local(self, ids: np.ndarray, scattered: bool = False) -> Tensor:
        """Return rows as for other shards; record the reads where gradients are computed."""
        rows = super().local(ids)
        assert isinstance(rows, Tensor), "learned rows are stored dense"
        if self.learned is not None and torch.is_grad_enabled():
            self.learned.read(ids, rows)
        return rows


def fetcher_class(shard: HostShard | DeviceShard) -> type[FeatureFetcher]:
    """Return the class of fetchers of the rows of `shard`: sparse, learned or dense."""
    if isinstance(shard, SparseShard):
        return SparseFeatureFetcher
    if isinstance(shard, TypedShard):
        return TypedFetcher
    return LearnedFetcher if isinstance(shard, LearnedShard) else FeatureFetcher


def _pack(rows: SparseFeatures) -> np.ndarray:
    """Pack column, then value, as they are stored: uint8[entries, bytes of one]."""
    columns, values = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (rows.indices, rows.data))
    return np.concatenate([columns.reshape(-1, INDEX_BYTES), values.reshape(-1, rows.dtype.itemsize)], axis=1)


def _unpack(packed: np.ndarray, like: SparseFeatures, counts: np.ndarray) -> SparseFeatures:
    """Unpack the rows of `counts` (integers[k]) entries each from the result of `_pack`, like `like`."""
    rows = empty_rows(counts, like)
    rows.indices[:] = np.ascontiguousarray(packed[:, :INDEX_BYTES]).view(np.int32).reshape(-1)
    rows.data[:] = np.ascontiguousarray(packed[:, INDEX_BYTES:]).view(like.dtype).reshape(-1)
    return rows
