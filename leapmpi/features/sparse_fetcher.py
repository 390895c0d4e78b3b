"""Sparse feature rows of any vertices: like RowFetcher, but entries cross ranks, and sparse matrices come of it.

How many entries a row has is known to all ranks, so one exchange brings rows of any length. Rows stay on the host
until they have been put together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from leapmpi.dataset.sparse_features import INDEX_BYTES, SparseFeatures, joined
from leapmpi.errors import ConfigError
from leapmpi.features.cache import RowCache
from leapmpi.features.compression import RowEncoding, RowErrors
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.row_exchange import RowExchange
from leapmpi.features.row_request import RowRequest
from leapmpi.features.sparse_shard import SparseShard, empty_rows, place_entries


class SparseFeatureFetcher(FeatureFetcher):
    """Fetches rows of a SparseShard; what it gives are SparseMatrix."""

    shard: SparseShard
    sparse = True

    def _together(self, request: RowRequest, encoding: RowEncoding | None, arrived: Any) -> Any:
        """The rows of `request` as a SparseMatrix on the device. Local."""
        with self.phases("gather"):
            arrived = self._unpacked(request, encoding, arrived)
            rows = empty_rows(self.shard.counts[request.ids], arrived)
            self.shard.place_entries(request.own_ids, rows, request.own_positions)
            place_entries(arrived, np.arange(len(arrived)), rows, request.remote_positions)
            if self.cache:
                place_entries(self.cache.rows, request.cached_slots.astype(np.int64), rows, request.cached_positions)
            return self._matrix(rows)

    def own(self, ids: np.ndarray, scattered: bool = False) -> Any:
        """The rows of `ids` (int64[k], all at home here, repeats allowed) as a SparseMatrix, always a copy. Local."""
        del scattered
        with self.phases("gather"):
            return self._matrix(self.shard.taken(ids))

    @property
    def sent_row_bytes(self) -> int:
        """Bytes of a row that crosses ranks in training, on average."""
        return max(1, round(self.shard.mean_entries * self._sent_entry_bytes(self.encoding)))

    @property
    def held_row_bytes(self) -> int:
        """Bytes of a row as the first layer reads it, on average."""
        return 8 + round(self.shard.mean_entries * (INDEX_BYTES + self.dtype.itemsize))

    def cached_bytes(self, cache: RowCache) -> int:
        """Bytes of the entries of the rows of `cache`, and of the tables of their places."""
        entries = int(self.shard.counts[cache.ids].sum(dtype=np.int64))
        return cache.held_bytes(0) + entries * self.shard.entry_bytes + 8 * (len(cache.ids) + 1)

    def answer_bytes(self, request: RowRequest, exact: bool = False) -> np.ndarray:
        """int64[ranks]: bytes of the rows that come from each rank. Local."""
        return self._entries_by_rank(request) * self._sent_entry_bytes(None if exact else self.encoding)

    def stand_in(self, count: int, width: int, scattered: bool = False) -> Any:
        """The first `width` columns of own rows, again and again: how many entries they have does matter. Local."""
        del scattered
        first, end = int(self.shard.bounds[0]), int(self.shard.bounds[-1])
        rows = self.shard.taken(first + np.arange(count, dtype=np.int64) % max(1, end - first))
        return self._matrix(rows if width == rows.width else rows.columns(0, width))

    def fill(self, cache: RowCache) -> None:
        """Bring the rows of `cache` here as they are at rest, a bounded number of bytes at a time. Collective."""
        self.cache = None
        blocks = [empty_rows(np.empty(0, np.int64), self.shard.parts[0])]
        for _, request in self._pieces(cache):
            blocks.append(self._packed(request, None, partial(self._unpacked, request, None)).complete())
        cache.rows = joined(blocks)
        self.cache = cache

    def warm_up(self) -> None:
        """Compile what `fetch` will run, by moving one own row about. Local."""
        row = self.shard.taken(np.array([self.shard.bounds[0]]))
        self._matrix(_unpacked(_packed(row, self.encoding, RowErrors()), row, np.diff(row.indptr), self.encoding))

    def _packed(self, request: RowRequest, encoding: RowEncoding | None, unpack: Callable[[Any], Any]) -> RowExchange:
        """The entries that others want, and room for those of the remote rows of `request`. Collective."""
        wanted, wanted_counts = self._wanted(request)
        with self.phases("gather"):
            rows = self.shard.taken(wanted)
            counts = np.diff(rows.indptr[np.concatenate(([0], np.cumsum(wanted_counts)))])
            sent = _packed(rows, encoding, self.errors)
        arriving = self._entries_by_rank(request)
        room = self._arriving.array((int(arriving.sum()), self._sent_entry_bytes(encoding)), "uint8")
        return RowExchange(self.communicator, self.kind, (sent, counts), (room, arriving), unpack)

    def _unpacked(self, request: RowRequest, encoding: RowEncoding | None, arrived: np.ndarray) -> SparseFeatures:
        """The remote rows of `request` in order of its remote ids, from what has `arrived`. Local."""
        return _unpacked(arrived, self.shard.parts[0], self.shard.counts[request.remote_ids], encoding)

    def _entries_by_rank(self, request: RowRequest) -> np.ndarray:
        ends = np.zeros(len(request.remote_ids) + 1, np.int64)
        np.cumsum(self.shard.counts[request.remote_ids], out=ends[1:])
        return np.diff(ends[np.concatenate(([0], np.cumsum(request.remote_counts)))])

    def _sent_entry_bytes(self, encoding: RowEncoding | None) -> int:
        return INDEX_BYTES + encoding.each if encoding else self.shard.entry_bytes

    def _matrix(self, rows: SparseFeatures) -> Any:
        import torch

        from leapmpi.nn.sparse_matrix import SparseMatrix
        from leapmpi.nn.tensors import Edges

        indptr, indices, values = (torch.from_numpy(each) for each in (rows.indptr, rows.indices, rows.data))
        if self.device.type != "cpu":
            indices = indices.long()
        entries = Edges(indptr.to(self.device), indices.to(self.device), rows.width)
        return SparseMatrix(entries, values.to(self.device).to(self.dtype))


def fetcher_for(communicator: Any, shard: Any, *arguments: Any, **settings: Any) -> FeatureFetcher:
    """The fetcher of the rows of `shard`, sparse or dense; the other arguments are those of RowFetcher.

    Raises ConfigError, on all ranks, for an encoding that entries have no room for.
    """
    if not isinstance(shard, SparseShard):
        return FeatureFetcher(communicator, shard, *arguments, **settings)
    fetcher = SparseFeatureFetcher(communicator, shard, *arguments, **settings)
    if fetcher.encoding and fetcher.encoding.head:
        error = ConfigError(
            f"--wire-dtype {fetcher.encoding.name} scales dense rows, and features are stored sparse; use float16, "
            "bfloat16 or native"
        )
        error.agreed = True
        raise error
    return fetcher


def _packed(rows: SparseFeatures, encoding: RowEncoding | None, errors: RowErrors) -> np.ndarray:
    """uint8[entries, bytes of one]: column, then value, encoded if wanted; counts errors."""
    values = rows.data if encoding is None else _encoded(rows, encoding, errors)
    each = encoding.each if encoding else rows.dtype.itemsize
    columns, values = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (rows.indices, values))
    return np.concatenate([columns.reshape(-1, INDEX_BYTES), values.reshape(-1, each)], axis=1)


def _unpacked(
    packed: np.ndarray, like: SparseFeatures, counts: np.ndarray, encoding: RowEncoding | None
) -> SparseFeatures:
    """The rows of `counts` (integers[k]) entries each in what `_packed` made, of the width and type of `like`."""
    rows = empty_rows(counts, like)
    rows.indices[:] = np.ascontiguousarray(packed[:, :INDEX_BYTES]).view(np.int32).reshape(-1)
    values = np.ascontiguousarray(packed[:, INDEX_BYTES:])
    if encoding is None:
        rows.data[:] = values.view(like.dtype).reshape(-1)
    else:
        rows.data[:] = _decoded(values, encoding)
    return rows


def _encoded(rows: SparseFeatures, encoding: RowEncoding, errors: RowErrors) -> np.ndarray:
    import torch

    if not len(rows.data):  # torch takes no other view of an empty tensor
        return np.empty((0, encoding.each), np.uint8)
    encoded = encoding.encode_tensor(torch.from_numpy(rows.data).unsqueeze(1), RowErrors()).numpy()
    exact, decoded = rows.data.astype(np.float64), _decoded(encoded, encoding).astype(np.float64)
    row, size = np.repeat(np.arange(len(rows)), np.diff(rows.indptr)), len(rows)
    lost, whole = (np.sqrt(np.bincount(row, each**2, size)) for each in (decoded - exact, exact))
    share = lost / np.where(whole == 0, 1, whole)
    errors.add(size, float(share.sum()), float(share.max(initial=0.0)))
    return encoded


def _decoded(values: np.ndarray, encoding: RowEncoding) -> np.ndarray:
    import torch

    if not len(values):
        return np.empty(0, np.float32)
    return encoding.decode_tensor(torch.from_numpy(values)).numpy().reshape(-1)
