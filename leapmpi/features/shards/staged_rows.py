"""Rows that the host gathers for a GPU, through two pinned buffers: one is filled while the other travels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from leapmpi.features.shards.host_shard import HostRows, place_rows
from leapmpi.features.shards.row_request import RowCache, RowRequest

STAGING_BYTES = 32 << 20
"""Of each of the two buffers."""

Fill = Callable[[slice, np.ndarray], None]
"""Writes the rows of a slice to an array of as many rows."""


class StagingBuffers:
    """Two pinned buffers of rows of one width and dtype, from which `device` copies."""

    def __init__(self, device: torch.device, width: int, dtype: torch.dtype, size: int) -> None:
        self.device, on_gpu = device, device.type == "cuda"
        self._rows = max(1, size // max(1, width * dtype.itemsize))
        self._buffers = [torch.empty((self._rows, width), dtype=dtype, pin_memory=on_gpu) for _ in range(2)]
        self._copied = [torch.cuda.Event() if on_gpu else None for _ in range(2)]

    def copy(self, count: int, fill: Fill, out: Tensor, positions: Tensor | None = None) -> None:
        """Copy out[positions[i]] (or out[i]) = row i of the `count` rows that `fill` writes; `out` is on the device."""
        for number, start in enumerate(range(0, count, self._rows)):
            part = slice(start, min(count, start + self._rows))
            buffer, copied = self._buffers[number % 2][: part.stop - start], self._copied[number % 2]

            # The buffer may still be read by its last copy.
            if copied:
                copied.synchronize()
            fill(part, buffer.numpy())
            if positions is None:
                out[part].copy_(buffer, non_blocking=True)
            else:
                out.index_copy_(0, positions[part], buffer.to(self.device, non_blocking=True))
            if copied:
                copied.record()


@dataclass
class StagedRows(HostRows):
    """The local half of a fetch from rows in host memory or files, for a GPU."""

    _staging: list[StagingBuffers] = field(default_factory=list)

    def local(self, ids: np.ndarray) -> Tensor:
        with self.phases("gather"):
            rows = self._new_rows(len(ids))
            self._stage(len(ids), lambda part, out: self.shard.place(ids[part], out, np.arange(len(out))), rows)
            return rows

    def collect(self, request: RowRequest, arrived: np.ndarray, cache: RowCache | None) -> Tensor:
        with self.phases("gather"):
            rows, scale = self._new_rows(len(request.ids)), self.shard.scale

            def local(part: slice, out: np.ndarray) -> None:
                self.shard.place(request.local_ids[part], out, np.arange(len(out)))

            def remote(part: slice, out: np.ndarray) -> None:
                place_rows(arrived, np.arange(part.start, part.stop), 0, out, np.arange(len(out)), scale)

            # Where all rows are local they are in order.
            whole = len(request.local_ids) == len(request.ids)
            self._stage(len(request.local_ids), local, rows, None if whole else request.local_positions)
            self._stage(len(arrived), remote, rows, request.remote_positions)
            if cache:
                held = cache.rows
                assert isinstance(held, np.ndarray), "cached rows are where the shard is"

                def cached(part: slice, out: np.ndarray) -> None:
                    place_rows(held, request.cached_slots[part], 0, out, np.arange(len(out)), scale)

                self._stage(len(request.cached_slots), cached, rows, request.cached_positions)
        return rows

    def _new_rows(self, count: int) -> Tensor:
        return torch.empty((count, self.shard.width), dtype=self.dtype, device=self.device)

    def _stage(self, count: int, fill: Fill, rows: Tensor, positions: np.ndarray | None = None) -> None:
        if not self._staging:
            # Pinned memory is scarce, so it is taken by the first use.
            self._staging.append(StagingBuffers(self.device, self.shard.width, self.dtype, STAGING_BYTES))
        where = None if positions is None else torch.from_numpy(positions).to(self.device)
        self._staging[0].copy(count, fill, rows, where)
