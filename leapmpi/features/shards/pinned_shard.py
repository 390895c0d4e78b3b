"""Feature rows in pinned host memory that the GPU reads by itself (UVA): a gather moves only the requested rows.

The memory is registered with the driver, and a device tensor stands on it. On the CPU, which may stand in for a GPU,
the tensor stands on plain memory.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leapmpi.errors import ResourceError
from leapmpi.features.shards.device_shard import DeviceShard, copy_rows
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.nn.kernels.row_types import to_tensor
from leapmpi.runs.text import size_text


@dataclass(frozen=True, eq=False)
class _Bytes:
    """Host memory as the CUDA array interface (version 3) shows it: uint8[rows, row bytes]."""

    memory: np.ndarray

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        shape, address = self.memory.shape, self.memory.ctypes.data
        return {"version": 3, "shape": shape, "typestr": "|u1", "data": (address, False), "strides": None}


class PinnedShard(DeviceShard):
    """Rows in host memory, read by `device`; it has the methods of DeviceShard.

    Raises ResourceError where the memory cannot be pinned.
    """

    def __init__(self, host: HostShard, device: torch.device) -> None:
        self._describe(host, device)
        rows = int(host.bounds[-1]) - self.first
        self.memory = np.empty((rows, host.row_bytes), np.uint8)
        dtype = to_tensor(np.empty(0, host.dtype)).dtype
        copy_rows(host, torch.from_numpy(self.memory).view(dtype))
        self.values = seen_from(self.memory, device).view(dtype)


def seen_from(memory: np.ndarray, device: torch.device) -> Tensor:
    """View the host's `memory` as uint8[rows, width] on `device`; it is pinned for the life of the view."""
    if device.type != "cuda" or memory.size == 0:
        return torch.from_numpy(memory)
    runtime = torch.cuda.cudart()
    if int(runtime.cudaHostRegister(memory.ctypes.data, memory.nbytes, 0)) != 0:
        raise ResourceError(
            f"{size_text(memory.nbytes)} of feature rows cannot be pinned for the GPU; give a smaller --feature-memory"
        )
    # Not at exit: CUDA may have ended before.
    weakref.finalize(memory, runtime.cudaHostUnregister, memory.ctypes.data).atexit = False
    return torch.as_tensor(_Bytes(memory), device=device)
