"""Files of dgl.data.save_tensors, such as DistDGL's node_feat.dgl, read without DGL: arrays by name, which are mapped.

Magic number, number of arrays twice, then each array: its name, a magic number, device, dimensions, type, shape, bytes.
All numbers are little-endian. DGL writes them in src/graph/serialize/tensor_serialize.cc and src/runtime/ndarray.cc.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np

from leapmpi.errors import DataError

MAGIC, ARRAY_MAGIC = 0xDD5A9FBE3FA2443F, 0xDD5E40F096B4A13F

_KINDS = {0: "i", 1: "u", 2: "f"}
_WIDTHS = (8, 16, 32, 64)
_LONGEST_NAME, _MOST_DIMENSIONS = 4096, 8
_ARRAY = struct.Struct("<QQiiiBBH")
"""Magic, reserved, type and number of the device, dimensions, kind, bits, lanes."""


def read_dgl_tensors(path: Path) -> dict[str, np.ndarray]:
    """Map the arrays in the file `path`. Raises DataError when it is missing, damaged or of another kind."""
    if not path.is_file():
        raise DataError(f"{path} does not exist")
    with path.open("rb") as file:
        try:
            magic, count, again = struct.unpack("<QQQ", file.read(24))
            if magic != MAGIC:
                raise DataError(f"{path} is not a file of tensors that DGL has saved (save_tensors)")
            if count != again or count > path.stat().st_size:
                raise ValueError(f"{count} and {again} arrays are announced")
            return dict(_array(file, path) for _ in range(count))
        except (struct.error, ValueError) as error:
            raise DataError(f"{path} is damaged or truncated ({error})") from error


def _array(file: BinaryIO, path: Path) -> tuple[str, np.ndarray]:
    """Read the name of the next array and the array. Raises ValueError or struct.error for damage."""
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _LONGEST_NAME:
        raise ValueError("a name is too long")
    name = file.read(length).decode("utf-8")
    magic, _, _, _, dimensions, kind, bits, lanes = _ARRAY.unpack(file.read(_ARRAY.size))
    if magic != ARRAY_MAGIC or not 0 <= dimensions <= _MOST_DIMENSIONS:
        raise ValueError("an array does not begin as one")
    if kind not in _KINDS or bits not in _WIDTHS or lanes != 1 or (kind == 2 and bits == 8):
        raise ValueError(f"array {name!r} is of a type that is not read (kind {kind}, {bits} bits)")
    shape = struct.unpack(f"<{dimensions}q", file.read(8 * dimensions))
    (size,) = struct.unpack("<q", file.read(8))

    # The bytes must match the shape and be inside the file.
    dtype, start = np.dtype(f"<{_KINDS[kind]}{bits // 8}"), file.tell()
    if min(shape, default=0) < 0 or size != dtype.itemsize * math.prod(shape):
        raise ValueError(f"array {name!r} of shape {list(shape)} has {size} bytes")
    if start + size > path.stat().st_size:
        raise ValueError(f"array {name!r} ends beyond the file")
    file.seek(size, 1)
    return name, np.memmap(path, dtype, "r", start, shape) if size else np.empty(shape, dtype)
