"""Fetcher of the input rows of a typed graph: features and learned rows of all types in one exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.row_exchange import Requested, RowExchange
from leapmpi.features.shards.host_shard import HostShard, place_rows
from leapmpi.features.shards.row_request import RowCache, RowRequest
from leapmpi.features.typed_shard import TypedShard, first_bytes
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.rows import LEAST_WIDTH
from leapmpi.nn.typed_matrix import TypedMatrix
from leapmpi.system.buffer_pool import BufferPool


@dataclass(frozen=True)
class LearnedRequest:
    """The learned rows of a request, by the numbers of owners; fields as those of RowRequest."""

    local_ids: np.ndarray
    local_positions: np.ndarray
    remote_positions: np.ndarray
    remote_counts: np.ndarray


@dataclass(frozen=True)
class PackedRows:
    """Rows in the form in which they travel: `rows` uint8[units, unit]; those of `positions` int64[k] of a request.

    starts: int64[k], the byte at which each begins.
    """

    positions: np.ndarray
    rows: np.ndarray
    starts: np.ndarray


class TypedFetcher(FeatureFetcher):
    """Fetches rows of a TypedShard as TypedMatrix, and records the learned rows that training reads."""

    shard: TypedShard

    @cached_property
    def _buffers(self) -> BufferPool:
        """Room for rows, kept between mini-batches."""
        return BufferPool()

    @cached_property
    def returned_row_bytes(self) -> int:  # type: ignore[override]
        """Bytes of the gradient of a row of a type that learns, 0 if none does."""
        return int(self.shard.learned_bytes.max())

    @property
    def held_row_bytes(self) -> int:
        """Bytes of a row as the input layer reads it, on average."""
        return max(1, round(self.shard.mean_columns * self.dtype.itemsize))

    def returned_bytes(self, request: RowRequest) -> int:
        return int(self.shard.learned_bytes[self.shard.types_of(request.remote_ids)].sum())

    def answer_bytes(self, request: RowRequest) -> np.ndarray:
        return self._units_by_rank(request.remote_ids, request.remote_counts) * self.shard.unit

    def cached_bytes(self, cache: RowCache) -> int:
        return cache.held_bytes(0) + int(self.shard.units(cache.ids).sum()) * self.shard.unit

    def local(self, ids: np.ndarray, scattered: bool = False) -> TypedMatrix:
        """Return the rows of `ids` (int64[k], all local, repeats allowed); record them where gradients are computed.

        Local.
        """
        with self.phases("gather"):
            rows = self._matrix(ids, np.arange(len(ids)), [])
        if self.learned is not None and rows.learned is not None and torch.is_grad_enabled():
            chosen = ids[self.shard.learns[self.shard.types_of(ids)]]
            self.learned.read(self.shard.learned_numbers(chosen), rows.learned)
        return rows

    def prepare(self, ids: np.ndarray, scattered: bool = False, trains: bool = False) -> RowExchange:
        exchange = super().prepare(ids)
        if trains and self.shard.learns.any():
            exchange.result_of = partial(self._noted, exchange.requested, exchange.result_of)
        return exchange

    def count_returns(self, exchange: RowExchange) -> None:
        assert exchange.requested is not None, "the fetcher made it"
        request, _, _ = exchange.requested
        if self.returned_row_bytes:
            learns = self.shard.learns[self.shard.types_of(request.remote_ids)]
            self.communicator.count(
                "row gradients", _count_chosen(learns, request.remote_counts), self.returned_row_bytes
            )

    def dummy_rows(self, count: int, width: int, scattered: bool = False) -> TypedMatrix:
        """Return `count` rows of zeros, of all types in turn. Local."""
        shard, types = self.shard, torch.arange(count) % self.shard.types
        features = [None if each is None else torch.zeros(count, each.width, dtype=self.dtype) for each in shard.tables]
        # Trained like those of mini-batches: a model may have no other parameters.
        learned = torch.zeros(count, shard.columns, dtype=self.dtype).requires_grad_() if shard.columns else None
        return self._on_device(TypedMatrix(width, features, learned, types, torch.arange(count), torch.arange(count)))

    def fill(self, cache: RowCache) -> None:
        """Fetch the rows of `cache` as they are stored, CACHE_BATCH_BYTES at a time. Collective."""
        self.cache = None
        # Ids ascend, so rows arrive in their order; they stay, so they are copied out of the buffer.
        blocks = [np.empty((0, self.shard.unit), np.uint8)]
        for _, request in self._cache_requests(cache):
            blocks.append(self._exchange(request, np.copy).complete())
        cache.rows = np.concatenate(blocks)
        self.cache = cache

    def warm_up(self) -> None:
        ids = np.arange(self.shard.bounds[0], min(self.shard.bounds[0] + 1, self.shard.bounds[1]))
        packed = self.shard.pack(ids, np.empty((int(self.shard.units(ids).sum()), self.shard.unit), np.uint8))
        self._matrix(ids, ids[:0], [self._packed(np.arange(len(ids)), ids, packed)])
        self._matrix(ids, np.arange(len(ids)), [])

    def _exchange(self, request: RowRequest, unpack: Callable[[Any], Any]) -> RowExchange:
        requested, counts = self.communicator.exchange_ids(request.remote_ids, request.remote_counts, self.id_codec)
        # Rows of types have several lengths: units of bytes travel, whose numbers both sides compute from the ids.
        sent_counts = self._units_by_rank(requested, counts)
        sent = self._buffers.array((int(sent_counts.sum()), self.shard.unit), "uint8")
        pack = partial(self._pack, requested, sent) if self.communicator.carries else None
        if pack is not None and not self.returned_row_bytes:
            pack()
            pack = None
        arriving_counts = self._units_by_rank(request.remote_ids, request.remote_counts)
        arriving = self._buffers.array((int(arriving_counts.sum()), self.shard.unit), "uint8")
        arrives, asked = (arriving, arriving_counts), (request, requested, counts)
        return RowExchange(self.communicator, self.kind, (sent, sent_counts), arrives, unpack, asked, pack)

    def _pack(self, requested: np.ndarray, sent: np.ndarray) -> None:
        with self.phases("gather"):
            self.shard.pack(requested, sent)

    def _collect(self, request: RowRequest, scattered: bool, arrived: np.ndarray) -> TypedMatrix:
        if not self.communicator.carries:
            return self.dummy_rows(len(request.ids), self.shard.width)
        packed = [self._packed(request.remote_positions, request.remote_ids, arrived)]
        if self.cache:
            assert isinstance(self.cache.rows, np.ndarray), "`fill` has filled it"
            starts = first_bytes(self.shard.units(self.cache.ids) * self.shard.unit)[request.cached_slots]
            packed.append(PackedRows(request.cached_positions, self.cache.rows, starts))
        with self.phases("gather"):
            return self._matrix(request.ids, request.local_positions, packed)

    def _packed(self, positions: np.ndarray, ids: np.ndarray, rows: np.ndarray) -> PackedRows:
        """Locate the `rows` of vertices `ids`, which follow each other."""
        return PackedRows(positions, rows, first_bytes(self.shard.units(ids) * self.shard.unit))

    def _matrix(self, ids: np.ndarray, local: np.ndarray, packed: Sequence[PackedRows]) -> TypedMatrix:
        """Collect the rows of `ids` (int64[k]): those of the positions `local` from the shard, others from `packed`."""
        shard, kind = self.shard, str(self.dtype).removeprefix("torch.")
        types, places, numbers = shard.types_of(ids), np.zeros(len(ids), np.int64), shard.numbers(ids[local])
        learns = shard.learns[types]
        learned_places = np.cumsum(learns) - 1
        # Rows of a type are read in place where none of them has to be unpacked.
        unpacked = {t for each in packed for t in np.unique(types[each.positions]).tolist()}
        in_place = [t not in unpacked and self._reads_in_place(table) for t, table in enumerate(shard.tables)]
        features: list[Any] = []
        for t, table in enumerate(shard.tables):
            rows = np.flatnonzero(types == t)
            places[rows] = np.arange(len(rows))
            room = np.empty(len(rows), np.int64) if in_place[t] else None
            if table is not None and room is None:
                room = self._buffers.array((len(rows), table.width), kind)
            features.append(room)
        learned = self._buffers.array((int(learns.sum()), shard.columns), kind) if shard.columns else None

        # Rows of this rank.
        for t, chosen in shard.by_type(types[local]):
            rows, target = local[chosen], features[t]
            if in_place[t]:
                shard.table(t).locate(numbers[chosen], target, places[rows])
            elif target is not None:
                shard.table(t).place(numbers[chosen], target, places[rows])
            if learned is not None and shard.learns[t]:
                learned[learned_places[rows]] = shard.learned_rows(shard.first_learned(t) + numbers[chosen])

        # Rows that have arrived, and cached ones.
        for each in packed:
            for t, chosen in shard.by_type(types[each.positions]):
                rows, target = each.positions[chosen], features[t]
                found, found_learned = shard.unpacked(t, each.rows, each.starts[chosen])
                if target is not None and found is not None:
                    place_rows(found, np.arange(len(found)), 0, target, places[rows], shard.table(t).scale)
                if learned is not None and found_learned is not None:
                    learned[learned_places[rows]] = found_learned
        columns = [
            shard.table(t).scattered(each, shard) if in_place[t] else None if each is None else torch.from_numpy(each)
            for t, each in enumerate(features)
        ]
        of_rows = (torch.from_numpy(each) for each in (types, places, learned_places))
        of_learned = None if learned is None else torch.from_numpy(learned)
        return self._on_device(TypedMatrix(shard.width, columns, of_learned, *of_rows))

    def _reads_in_place(self, table: HostShard | None) -> bool:
        """Return whether kernels read rows of `table` where they are, without a copy."""
        fits = on_host(self.device) and self.dtype == torch.float32
        return fits and table is not None and table.addressable and table.width >= LEAST_WIDTH

    def _on_device(self, rows: TypedMatrix) -> TypedMatrix:
        if on_host(self.device):
            return rows
        features = [each.to(self.device) if isinstance(each, Tensor) else None for each in rows.features]
        learned = None if rows.learned is None else rows.learned.to(self.device)
        numbers = (each.to(self.device) for each in (rows.types, rows.places, rows.learned_places))
        return TypedMatrix(rows.width, features, learned, *numbers)

    def _noted(self, of_exchange: Requested, result_of: Any, arrived: Any) -> TypedMatrix:
        """Record that the iteration computes with rows that an exchange has brought."""
        rows: TypedMatrix = result_of(arrived)
        assert self.learned is not None, "a job trains"
        assert rows.learned is not None, "some types learn"
        assert of_exchange is not None, "the fetcher made it"
        shard, (request, requested, counts) = self.shard, of_exchange
        # Owners learn rows of some types alone: the request is cut down to these, with its order kept.
        learns = shard.learns[shard.types_of(request.ids)]
        places = np.cumsum(learns) - 1
        local, remote = (each[learns[each]] for each in (request.local_positions, request.remote_positions))
        chosen = LearnedRequest(
            local_ids=shard.learned_numbers(request.ids[local]),
            local_positions=places[local],
            remote_positions=places[remote],
            remote_counts=_count_chosen(learns[request.remote_positions], request.remote_counts),
        )
        # Others have cut their requests in the same way, so counts agree without another message.
        asked = shard.learns[shard.types_of(requested)]
        numbers = shard.learned_numbers(requested[asked])
        self.learned.fetched(chosen, numbers, _count_chosen(asked, counts), rows.learned)
        return rows

    def _units_by_rank(self, ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Count the units of the rows of `ids`, by rank, `counts` (int64[ranks]) of each: int64[ranks]."""
        ends = np.concatenate(([0], np.cumsum(self.shard.units(ids))))
        return np.diff(ends[np.concatenate(([0], np.cumsum(counts)))])


def _count_chosen(chosen: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Count the chosen entries (bool[k]) of each rank, `counts` (int64[ranks]) of them in turn: int64[ranks]."""
    ends = np.concatenate(([0], np.cumsum(chosen, dtype=np.int64)))
    return np.diff(ends[np.concatenate(([0], np.cumsum(counts)))])
