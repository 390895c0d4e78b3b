"""Memory that is kept between iterations, so that nothing large is allocated in the steady state."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np


class _Loan:
    """Memory that arrays stand on; its end is noticed when none of them, nor any view of them, is left."""

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.memory.__array_interface__


class BufferPool:
    """Lends arrays, each valid as long as it, or a view or tensor of it, is held; then its memory is lent again.

    Nothing is allocated once as many arrays, of sizes as large, have been in use at once as ever will be. One thread
    at a time borrows; any may give back.
    """

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def array(self, shape: tuple[int, ...], dtype: np.dtype | str) -> np.ndarray:
        """An uninitialised array; grows by a quarter beyond the need so that varying sizes settle."""
        dtype = np.dtype(dtype)
        wanted = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        memory = self._free.pop() if self._free else None
        if memory is None or memory.nbytes < wanted:
            memory = np.empty(wanted + wanted // 4 + 64, np.uint8)
        loan = _Loan(memory)
        weakref.finalize(loan, self._free.append, memory).atexit = False
        return np.asarray(loan)[:wanted].view(dtype).reshape(shape)
