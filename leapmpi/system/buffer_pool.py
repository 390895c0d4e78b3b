"""Memory that is kept between iterations, so that no iteration allocates anything large."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np


class _Loan:
    """The owner of lent memory. It is freed when no array on the memory, nor any view of one, is left."""

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.memory.__array_interface__


class BufferPool:
    """Lends arrays, each valid as long as it, or a view or tensor of it, is held; then its memory is lent again.

    Allocates only when more arrays, or larger ones, are in use at once than ever before. One thread at a time borrows;
    any may give back.
    """

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def array(self, shape: tuple[int, ...], dtype: np.dtype | str) -> np.ndarray:
        """Return an uninitialised array. New memory is a quarter larger than needed, so that varying sizes soon fit."""
        dtype = np.dtype(dtype)
        needed = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        memory = self._free.pop() if self._free else None
        if memory is None or memory.nbytes < needed:
            memory = np.empty(needed + needed // 4 + 64, np.uint8)
        loan = _Loan(memory)
        weakref.finalize(loan, self._free.append, memory).atexit = False
        return np.asarray(loan)[:needed].view(dtype).reshape(shape)
