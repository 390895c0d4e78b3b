"""Mapped arrays: temporary files as arrays, and reading a part of a mapped array past its map.

Pages that are read past the map do not stay with the process.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import BinaryIO, Literal

import numpy as np

from leapmpi.errors import DataError


def read_into(array: np.ndarray, start: int, into: np.ndarray) -> None:
    """Copy `array[start : start + len(into)]` to `into` (contiguous, of the same type); other arrays are just copied.

    Raises DataError when the file has become shorter.
    """
    if not len(into) or not isinstance(array, np.memmap) or array.filename is None:
        into[:] = array[start : start + len(into)]
        return
    with open(array.filename, "rb") as file:
        view = memoryview(into).cast("B")
        # The array may be a slice of the map, which begins at a page of the file.
        before = array.ctypes.data - np.frombuffer(array._mmap, np.uint8).ctypes.data
        place = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY + before + start * array.itemsize

        # The system fetches the next chunk from the disk while the caller works on this one.
        os.posix_fadvise(file.fileno(), place + len(view), len(view), os.POSIX_FADV_WILLNEED)
        while view:
            count = os.preadv(file.fileno(), [view], place)
            if count == 0:
                raise DataError(f"{array.filename} became shorter while it was read; copy or make it again")
            view = view[count:]
            place += count


def temporary_file() -> BinaryIO:
    """Open an unnamed file among temporary files (TMPDIR); it vanishes when no process has it open or mapped."""
    return tempfile.TemporaryFile(prefix="leapmpi-", dir=tempfile.gettempdir())


def mapped(file: BinaryIO, dtype: np.dtype | type, length: int, mode: Literal["r", "r+"] = "r") -> np.ndarray:
    """Map `file` as an array `dtype`[length], after flushing it; mode r+ allows changes in place."""
    file.flush()
    return np.memmap(file, dtype, mode, 0, (length,)) if length else np.empty(0, dtype)
