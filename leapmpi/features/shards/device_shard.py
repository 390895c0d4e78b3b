"""The GPU path of this room: feature rows in device memory, and how a fetcher reads, packs and places them there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from leapmpi.features.cache import RowCache
from leapmpi.features.compression import RowEncoding, RowErrors
from leapmpi.features.host_shard import HostShard
from leapmpi.features.row_exchange import RowRequest
from leapmpi.nn.kernels.row_types import decoded, to_tensor
from leapmpi.system.phase_timers import PhaseTimers

_STAGING_BYTES = 64 << 20
"""Pinned host memory through which rows go to the device."""

_DEVICE_SHARE = 0.6
"""The share of the free device memory that rows may take."""


class DeviceShard:
    """Rows in device memory, copied there from `host` in blocks of bounded size through pinned memory."""

    addressable = False
    """Rows in device memory have no address that the host can read."""

    def __init__(self, host: HostShard, device: torch.device) -> None:
        self.first = int(host.bounds[0])
        self.width = host.width
        self.device = device
        dtype = to_tensor(np.empty(0, host.dtype)).dtype
        self.values = torch.empty((int(host.bounds[-1]) - self.first, host.width), dtype=dtype, device=device)
        self.row_bytes, self.nbytes = host.row_bytes, host.nbytes
        self.resident_bytes = host.nbytes
        self.scale = None if host.scale is None else torch.from_numpy(host.scale).to(device)

        rows = max(1, _STAGING_BYTES // max(1, host.width * host.dtype.itemsize))
        staging = torch.empty((rows, host.width), dtype=dtype, pin_memory=self.device.type == "cuda")
        begin = 0
        for part in host.parts:
            for start in range(0, len(part), rows):
                block = part[start : start + rows]
                staging[: len(block)] = to_tensor(np.array(block))
                self.values[begin : begin + len(block)].copy_(staging[: len(block)])
                begin += len(block)

    def whole(self) -> torch.Tensor:
        """All rows of the shard, without a copy."""
        return self.values

    def rows(self, ids: np.ndarray) -> torch.Tensor:
        """The rows of `ids` (int64[k], all in this shard) as a device tensor (k, width) of the stored type."""
        return self.values[torch.from_numpy(ids - self.first).to(self.device)]

    def new_rows(self, count: int) -> torch.Tensor:
        """Room for `count` rows on the device; its values are arbitrary."""
        return self.values.new_empty((count, self.width))


@dataclass
class DeviceRows:
    """The local half of a fetch from a DeviceShard, with the methods of HostRows. All rows stay on the device."""

    shard: DeviceShard
    device: torch.device
    dtype: torch.dtype
    phases: PhaseTimers

    def local(self, ids: np.ndarray) -> torch.Tensor:
        """The rows of `ids` (int64[k], all in the shard, repeats allowed) as a tensor (k, width)."""
        with self.phases("gather"):
            return decoded(self.shard.rows(ids), self.shard.scale, self.dtype)

    def pack(
        self, ids: np.ndarray, count: int, encoding: RowEncoding | None, errors: RowErrors
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of `ids` as they are sent, and memory for `count` rows of that form.

        Rows are sent encoded (uint8), or in the stored type. Adds what `encoding` loses to `errors`.
        """
        packed = self.shard.rows(ids)
        if encoding:
            packed = encoding.encode_tensor(decoded(packed, self.shard.scale, torch.float32), errors)
        return packed, packed.new_empty((count, packed.shape[1]))

    def collect(
        self, request: RowRequest, arrived: torch.Tensor, encoding: RowEncoding | None, cache: RowCache | None
    ) -> torch.Tensor:
        """The rows of `request` as a tensor (k, width), from this shard, from `arrived` and from `cache`."""
        scale, dtype = self.shard.scale, self.dtype
        arrived = encoding.decode_tensor(arrived).to(dtype) if encoding else decoded(arrived, scale, dtype)
        rows = torch.empty((len(request.ids), self.shard.width), dtype=self.dtype, device=self.device)

        # Local, remote and cached rows, each at their positions in the request.
        rows[self._index(request.local_positions)] = decoded(self.shard.rows(request.local_ids), scale, dtype)
        rows[self._index(request.remote_positions)] = arrived
        if cache:
            assert isinstance(cache.rows, torch.Tensor), "cached rows are where the shard is"
            slots = self._index(request.cached_slots).long()
            rows[self._index(request.cached_positions)] = decoded(cache.rows[slots], scale, dtype)
        return rows

    def warm_up(self, encoding: RowEncoding | None, errors: RowErrors) -> None:
        """Nothing: the device needs no kernel of ours."""

    def _index(self, positions: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(positions).to(self.device)


def load_shard(host: HostShard, device: torch.device) -> HostShard | DeviceShard:
    """The shard in the memory from which `device` reads it fastest.

    On a GPU with enough free memory the rows go there; otherwise they stay in pinned host memory. Sparse rows stay
    where they are.
    """
    if device.type != "cuda" or not isinstance(host.parts[0], np.ndarray):
        return host
    free, _ = torch.cuda.mem_get_info(device)
    if host.nbytes <= free * _DEVICE_SHARE:
        return DeviceShard(host, device)
    pinned = [torch.empty(part.shape, dtype=getattr(torch, host.dtype.name), pin_memory=True) for part in host.parts]
    for tensor, part in zip(pinned, host.parts, strict=True):
        tensor.numpy()[...] = part
    return HostShard([tensor.numpy() for tensor in pinned], int(host.bounds[0]), host.scale)
