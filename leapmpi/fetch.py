"""Rows of any vertices, wherever they are at home: own rows in place, others' rows through the wire."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from leapmpi.dataset.shard import DeviceShard, HostShard, place_rows
from leapmpi.id_ranges import IdRanges
from leapmpi.phases import Phases
from leapmpi.plan.homes import home_of
from leapmpi.scratch import Scratch
from leapmpi.wire import Wire


class Request:
    """Distinct vertex ids grouped by home: which are here, which to ask of whom."""

    def __init__(self, ids: np.ndarray, rank_offsets: np.ndarray, rank: int) -> None:
        home = home_of(ids, rank_offsets).astype(np.uint16)
        order = np.argsort(home, kind="stable")
        counts = np.bincount(home, minlength=len(rank_offsets) - 1).astype(np.int64)
        begin = int(counts[:rank].sum())
        end = begin + int(counts[rank])
        self.total = len(ids)
        self.own_positions = order[begin:end]
        self.own_ids = ids[self.own_positions]
        self.remote_positions = np.concatenate((order[:begin], order[end:]))
        self.remote_ids = ids[self.remote_positions]
        counts[rank] = 0
        self.remote_counts = counts


class RowFetcher:
    """Fetches rows of one shard that is spread over the ranks.

    Args:
        wire: the way to the other ranks.
        shard: this rank's rows.
        rank_offsets: int64[ranks + 1], the range of vertices at home on each rank.
        device: torch.device on which rows are wanted.
        dtype: torch dtype in which rows are wanted; they cross ranks in the type they have at rest.
        kind: how the ledger names the bytes; rows are counted when it is "features".
        phases: clock on which copying rows counts as "gather".
    """

    def __init__(
        self,
        wire: Wire,
        shard: HostShard | DeviceShard,
        rank_offsets: np.ndarray,
        device: Any,
        dtype: Any,
        kind: str = "features",
        phases: Phases | None = None,
    ) -> None:
        self.wire, self.shard, self.rank_offsets = wire, shard, rank_offsets
        self.device, self.dtype, self.kind = device, dtype, kind
        self.phases = phases or Phases()
        self.ranges = IdRanges.at_home(rank_offsets)
        self._scratch = Scratch()

    def fetch(self, ids: np.ndarray) -> Any:
        """The rows of distinct `ids` (int64[k], any order) as a tensor (k, width) on the device. Collective.

        The tensor is valid until the next fetch.
        """
        request = Request(ids, self.rank_offsets, self.wire.rank)
        if self.kind == "features":
            self.wire.ledger.add_rows("local", len(request.own_ids))
            self.wire.ledger.add_rows("remote", len(request.remote_ids))
        wanted, wanted_counts = self.wire.exchange_ids(request.remote_ids, request.remote_counts, self.ranges)
        if isinstance(self.shard, DeviceShard):
            return self._fetch_on_device(request, wanted, wanted_counts)
        return self._fetch_on_host(request, wanted, wanted_counts)

    def own(self, ids: np.ndarray, place: str = "rows") -> Any:
        """The rows of `ids` (int64[k], all at home here, repeats allowed) as a tensor (k, width). Local.

        The tensor is valid until the next call with the same name of a `place` to keep it.
        """
        with self.phases("gather"):
            if isinstance(self.shard, DeviceShard):
                return self.shard.rows(ids).to(self.dtype)
            rows = self._host_rows(len(ids), self.shard.width, place)
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

    def warm_up(self) -> None:
        """Compile what `fetch` will run, by moving one own row about. Local."""
        if isinstance(self.shard, DeviceShard):
            return
        first, width = int(self.shard.bounds[0]), self.shard.width
        ids, place = np.array([first]), np.zeros(1, np.int64)
        row = self.shard.rows(ids, self._scratch.array("asked", (1, width), self.shard.dtype))
        target = self._host_rows(1, width).numpy()
        self.shard.place(ids, target, place)
        place_rows(row, place, 0, target, place)

    def _fetch_on_host(self, request: Request, wanted: np.ndarray, wanted_counts: np.ndarray) -> Any:
        import torch

        shard, width = self.shard, self.shard.width
        with self.phases("gather"):
            asked = shard.rows(wanted, self._scratch.array("asked", (len(wanted), width), shard.dtype))
        arrived = self._scratch.array("arrived", (len(request.remote_ids), width), shard.dtype)
        self.wire.exchange(asked, wanted_counts, arrived, request.remote_counts, self.kind)
        with self.phases("gather"):
            rows = self._host_rows(request.total, width)
            target = rows.numpy()
            shard.place(request.own_ids, target, request.own_positions)
            place_rows(arrived, np.arange(len(arrived)), 0, target, request.remote_positions)
        return rows if self.device.type == "cpu" else torch.empty_like(rows, device=self.device).copy_(rows)

    def _host_rows(self, count: int, width: int, place: str = "rows") -> Any:
        import torch

        name = str(self.dtype).removeprefix("torch.")
        if self.device.type == "cpu":
            return torch.from_numpy(self._scratch.array(place, (count, width), name))
        return torch.empty((count, width), dtype=self.dtype, pin_memory=True)

    def _fetch_on_device(self, request: Request, wanted: np.ndarray, wanted_counts: np.ndarray) -> Any:
        import torch

        asked = self.shard.rows(wanted)
        arrived = asked.new_empty((len(request.remote_ids), self.shard.width))
        self.wire.exchange(asked, wanted_counts, arrived, request.remote_counts, self.kind)
        rows = torch.empty((request.total, self.shard.width), dtype=self.dtype, device=self.device)
        rows[torch.from_numpy(request.own_positions).to(self.device)] = self.shard.rows(request.own_ids).to(self.dtype)
        rows[torch.from_numpy(request.remote_positions).to(self.device)] = arrived.to(self.dtype)
        return rows
