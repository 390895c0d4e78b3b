"""Buffers for MPI: checked, contiguous bytes, on the host or on a device.

mpi4py accepts transposed tensors, unequal types and unfinished GPU work without complaint and delivers garbage.
Everything that crosses ranks is therefore turned into plain bytes here, after checks, and MPI sees bytes only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeGuard, overload

import numpy as np

if TYPE_CHECKING:
    import torch

    Array = np.ndarray | torch.Tensor
    """Numbers on the host, or on a device."""

DTYPES = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "uint16", "bfloat16")
"""Types that may cross ranks; the position is the code that both sides compare."""

MESSAGE_LIMIT = 1 << 28
"""Largest single MPI message in bytes, far below the 2**31 that MPI-3 counts can hold."""


@dataclass(frozen=True, eq=False)
class DeviceBytes:
    """`size` bytes of device memory from the address `pointer` on, which `owner` keeps alive.

    Shown to MPI by the CUDA array interface (version 3).
    """

    pointer: int
    size: int
    owner: torch.Tensor

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "data": (self.pointer, False), "strides": None}

    def __getitem__(self, part: slice) -> DeviceBytes:
        start, stop, _ = part.indices(self.size)
        return DeviceBytes(self.pointer + start, max(stop - start, 0), self.owner)

    def __len__(self) -> int:
        return self.size


def on_device(array: Array) -> TypeGuard[torch.Tensor]:
    """Return whether the memory of `array` is that of a GPU."""
    return bool(getattr(array, "is_cuda", False))


def dtype_name(array: Array) -> str:
    """Return the name of the element type, 'float32' for numpy and torch alike."""
    return _name_of(array.dtype)


@cache  # numpy builds the name at every call, which takes longer than the rest of a small message
def _name_of(dtype: np.dtype | torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def type_code(array: Array) -> int:
    """Return the number of the element type. It is sent as the message's tag, so that both sides can compare."""
    return DTYPES.index(dtype_name(array))


def check(array: Array, what: str) -> None:
    """Raise ValueError, which calls the array `what`, unless it has a known type and is C-contiguous."""
    if dtype_name(array) not in DTYPES:
        raise ValueError(f"{what}: type {dtype_name(array)} may not cross ranks; one of {', '.join(DTYPES)}")
    contiguous = array.flags.c_contiguous if isinstance(array, np.ndarray) else array.is_contiguous()
    if not contiguous:
        raise ValueError(f"{what}: the array is not contiguous in C order")


@overload
def as_bytes(array: np.ndarray, what: str) -> np.ndarray: ...
@overload
def as_bytes(array: Array, what: str) -> np.ndarray | DeviceBytes: ...
def as_bytes(array: Array, what: str) -> np.ndarray | DeviceBytes:
    """View the memory of `array` as bytes, without a copy: uint8[bytes] on the host, DeviceBytes on a device.

    Raises ValueError as `check` does.
    """
    check(array, what)
    if on_device(array):
        # Not by the tensor's own array interface, which has no bfloat16 in older versions of torch.
        return DeviceBytes(array.data_ptr(), array.nbytes, array)
    return _on_host(array).reshape(-1).view(np.uint8)


def _on_host(array: Array) -> np.ndarray:
    """View `array`, in host memory, as an array of numpy; bfloat16, which numpy lacks, as bits."""
    if isinstance(array, np.ndarray):
        return array
    if dtype_name(array) == "bfloat16":
        import torch

        array = array.view(torch.int16)
    return array.detach().numpy()


def synchronise(array: Array) -> None:
    """Wait until device work on `array` is done: MPI knows nothing of streams."""
    if not on_device(array):
        return
    if hasattr(array, "synchronise"):
        array.synchronise()
        return
    import torch

    torch.cuda.current_stream(array.device).synchronize()


def empty_like(array: Array, *shape: int) -> Array:
    """Allocate an array of `shape`, of the type and on the device of `array`; its values are arbitrary."""
    return np.empty(shape, array.dtype) if isinstance(array, np.ndarray) else array.new_empty(shape)


def parts(size: int, largest: int | None = None) -> list[slice]:
    """Yield slices of at most `largest` bytes, and never more than MESSAGE_LIMIT, that cover `size` bytes."""
    step = min(largest or MESSAGE_LIMIT, MESSAGE_LIMIT)
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]
