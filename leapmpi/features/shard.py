"""The rows this rank is home to: mapped from the part files, or held on a GPU.

A shard covers one contiguous range of vertices, made of one or more parts, and hands out rows by global vertex id.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from leapmpi.system.jit import compiled

_STAGING_BYTES = 64 << 20
_DEVICE_SHARE = 0.6


@compiled
def _copy_rows(source, rows, first, target, positions):
    width = source.shape[1]
    for i in range(rows.size):
        row, position = rows[i] - first, positions[i]
        for j in range(width):
            target[position, j] = source[row, j]


def place_rows(source: np.ndarray, rows: np.ndarray, first: int, target: np.ndarray, positions: np.ndarray) -> None:
    """target[positions[i]] = source[rows[i] - first], converted to the target's type. All rows must lie in `source`."""
    if source.dtype == np.float16:
        # numba has no half precision on processors.
        target[positions] = source[rows - first]
    else:
        _copy_rows(source, rows, first, target, positions)


class HostShard:
    """Rows in host memory: one (rows, width) array per part, in vertex order; mapped files cost no copy.

    `first` is the global id of the first row. One-dimensional arrays count as width 1.
    """

    def __init__(self, parts: Sequence[np.ndarray], first: int) -> None:
        self.parts = [np.asarray(part).reshape(len(part), -1) for part in parts]
        self.bounds = first + np.concatenate(([0], np.cumsum([len(part) for part in self.parts]))).astype(np.int64)

    @property
    def width(self) -> int:
        """Values per row."""
        return self.parts[0].shape[1]

    @property
    def dtype(self) -> np.dtype:
        """Type of the values at rest."""
        return self.parts[0].dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.width * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return sum(part.nbytes for part in self.parts)

    def whole(self) -> Any:
        """All rows as one tensor (rows, width) that shares their memory, to be read only; None for several parts."""
        if len(self.parts) > 1 or self.parts[0].dtype.byteorder == ">":
            return None
        import torch

        with warnings.catch_warnings():
            # Mapped files are read-only, which torch cannot express.
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(self.parts[0])

    def place(self, ids: np.ndarray, target: np.ndarray, positions: np.ndarray) -> None:
        """target[positions[i]] = row of vertex ids[i]; ids int64, all at home here."""
        for part, first, chosen, where in self.split(ids):
            place_rows(part, chosen, first, target, positions[where])

    @property
    def addressable(self) -> bool:
        """Whether every row lies in memory as float32 of this machine, element after element."""
        return all(part.dtype == np.float32 and part.flags.c_contiguous for part in self.parts)

    def locate(self, ids: np.ndarray, addresses: np.ndarray, positions: np.ndarray) -> None:
        """addresses[positions[i]] = that of the row of vertex ids[i]; ids int64, all at home here."""
        for part, first, chosen, where in self.split(ids):
            addresses[positions[where]] = part.ctypes.data + self.row_bytes * (chosen - first)

    def split(self, ids: np.ndarray) -> Iterator[tuple[np.ndarray, int, np.ndarray, np.ndarray]]:
        """For each part that `ids` (int64, all at home here) touch: part, its first id, its ids, their places."""
        if len(self.parts) == 1:
            yield self.parts[0], int(self.bounds[0]), ids, np.arange(len(ids))
            return
        part_of = np.searchsorted(self.bounds, ids, side="right") - 1
        for number, part in enumerate(self.parts):
            where = np.flatnonzero(part_of == number)
            if where.size:
                yield part, int(self.bounds[number]), ids[where], where

    def rows(self, ids: np.ndarray, out: np.ndarray) -> np.ndarray:
        """The rows of `ids`, in order, written to `out` (len(ids), width)."""
        self.place(ids, out, np.arange(len(ids)))
        return out


class DeviceShard:
    """Rows in GPU memory, loaded through pinned pieces."""

    def __init__(self, host: HostShard, device: Any) -> None:
        import torch

        self.first = int(host.bounds[0])
        self.width = host.width
        self.device = device
        dtype = getattr(torch, host.dtype.name)
        self.values = torch.empty((int(host.bounds[-1]) - self.first, host.width), dtype=dtype, device=device)
        self._load(host, dtype)

    def _load(self, host: HostShard, dtype: Any) -> None:
        import torch

        rows = max(1, _STAGING_BYTES // max(1, host.width * host.dtype.itemsize))
        staging = torch.empty((rows, host.width), dtype=dtype, pin_memory=self.device.type == "cuda")
        begin = 0
        for part in host.parts:
            for start in range(0, len(part), rows):
                piece = part[start : start + rows]
                staging.numpy()[: len(piece)] = piece
                self.values[begin : begin + len(piece)].copy_(staging[: len(piece)])
                begin += len(piece)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.width * self.values.element_size()

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.values.numel() * self.values.element_size()

    def whole(self) -> Any:
        """All rows as one device tensor (rows, width)."""
        return self.values

    def rows(self, ids: np.ndarray) -> Any:
        """The rows of `ids` (int64, all at home here) as a device tensor (len(ids), width)."""
        import torch

        return self.values[torch.from_numpy(ids - self.first).to(self.device)]


def load_shard(host: HostShard, device: Any) -> HostShard | DeviceShard:
    """The shard where `device` (torch.device) reads it best.

    On a GPU with room the rows go there; rows larger than the GPU stay in pinned host memory. Sparse ones stay as they
    are.
    """
    if device.type != "cuda" or not isinstance(host.parts[0], np.ndarray):
        return host
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    if host.nbytes <= free * _DEVICE_SHARE:
        return DeviceShard(host, device)
    pinned = [torch.empty(part.shape, dtype=getattr(torch, host.dtype.name), pin_memory=True) for part in host.parts]
    for tensor, part in zip(pinned, host.parts, strict=True):
        tensor.numpy()[...] = part
    return HostShard([tensor.numpy() for tensor in pinned], int(host.bounds[0]))
