"""Feature rows in device memory, and how a fetcher reads, packs and places them there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from leapmpi.features.shards.host_shard import HostShard
from leapmpi.features.shards.row_request import RowCache, RowRequest
from leapmpi.nn.kernels.row_types import decoded, to_tensor
from leapmpi.system.phase_timers import PhaseTimers

_STAGING_BYTES = 64 << 20
"""Pinned host memory through which rows go to the device."""


class DeviceShard:
    """Rows in device memory, copied there from `host` in blocks of bounded size through pinned memory."""

    addressable = False
    """Rows in device memory have no address that the host can read."""

    def __init__(self, host: HostShard, device: torch.device) -> None:
        self._describe(host, device)
        dtype = to_tensor(np.empty(0, host.dtype)).dtype
        self.values = torch.empty((int(host.bounds[-1]) - self.first, host.width), dtype=dtype, device=device)
        copy_rows(host, self.values)

    def _describe(self, host: HostShard, device: torch.device) -> None:
        """Take over what `host` says of its rows."""
        self.first, self.width, self.device = int(host.bounds[0]), host.width, device
        self.row_bytes, self.nbytes, self.resident_bytes = host.row_bytes, host.nbytes, host.nbytes
        self.scale = None if host.scale is None else torch.from_numpy(host.scale).to(device)

    def whole(self) -> torch.Tensor:
        """Return all rows of the shard, without a copy."""
        return self.values

    def rows(self, ids: np.ndarray) -> torch.Tensor:
        """Return the rows of `ids` (int64[k], all in this shard) as a device tensor (k, width) of the stored type."""
        return self.values.index_select(0, _uploaded(ids - self.first, self.device))

    def new_rows(self, count: int) -> torch.Tensor:
        """Allocate `count` rows on the device; their values are arbitrary."""
        return self.values.new_empty((count, self.width))


def copy_rows(host: HostShard, values: torch.Tensor) -> None:
    """Copy all rows of `host` to `values` (rows, width), to a device through pinned memory of bounded size."""
    rows = max(1, _STAGING_BYTES // max(1, host.width * host.dtype.itemsize))
    shape = rows, host.width
    staging = torch.empty(shape, dtype=values.dtype, pin_memory=True) if values.is_cuda else None
    begin = 0
    for part in host.parts:
        for start in range(0, len(part), rows):
            block = to_tensor(np.array(part[start : start + rows]))
            # From pageable memory the driver would copy through buffers of its own, and wait for each.
            if staging is not None:
                block = staging[: len(block)].copy_(block)
            values[begin : begin + len(block)].copy_(block)
            begin += len(block)


@dataclass
class DeviceRows:
    """The local half of a fetch from a DeviceShard, with the methods of HostRows. All rows stay on the device."""

    shard: DeviceShard
    device: torch.device
    dtype: torch.dtype
    phases: PhaseTimers

    def local(self, ids: np.ndarray) -> torch.Tensor:
        """Return the rows of `ids` (int64[k], all in the shard, repeats allowed) as a tensor (k, width)."""
        with self.phases("gather"):
            return decoded(self.shard.rows(ids), self.shard.scale, self.dtype)

    def pack(self, ids: np.ndarray, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Pack the rows of `ids` for sending, in the stored type; also return memory for `count` rows that arrive."""
        return self.shard.rows(ids), self.shard.new_rows(count)

    def collect(self, request: RowRequest, arrived: torch.Tensor, cache: RowCache | None) -> torch.Tensor:
        """Collect the rows of `request` as a tensor (k, width), from this shard, from `arrived` and from `cache`."""
        scale, dtype = self.shard.scale, self.dtype
        if len(request.local_ids) == len(request.ids):
            return self.local(request.local_ids)
        rows = torch.empty((len(request.ids), self.shard.width), dtype=self.dtype, device=self.device)

        # Local, remote and cached rows, each at their positions in the request.
        rows[self._index(request.local_positions)] = decoded(self.shard.rows(request.local_ids), scale, dtype)
        rows[self._index(request.remote_positions)] = decoded(arrived, scale, dtype)
        if cache:
            assert isinstance(cache.rows, torch.Tensor), "cached rows are where the shard is"
            slots = self._index(request.cached_slots).long()
            rows[self._index(request.cached_positions)] = decoded(cache.rows[slots], scale, dtype)
        return rows

    def warm_up(self) -> None:
        """Do nothing: the device needs no kernel of ours."""

    def _index(self, positions: np.ndarray) -> torch.Tensor:
        return _uploaded(positions, self.device)


def _uploaded(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Copy `array` to `device`; to a GPU through pinned memory, so that the host does not wait for the copy."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        tensor = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)
    return tensor.to(device, non_blocking=True)
