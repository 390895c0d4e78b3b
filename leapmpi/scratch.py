"""Memory that is kept between iterations, so that nothing large is allocated in the steady state."""

from __future__ import annotations

import numpy as np


class Scratch:
    """Arrays by purpose. An array is valid until the same purpose is asked for again."""

    def __init__(self) -> None:
        self._kept: dict[str, np.ndarray] = {}

    def array(self, purpose: str, shape: tuple[int, ...], dtype: np.dtype | str) -> np.ndarray:
        """An uninitialised array; grows by a quarter beyond the need so that varying sizes settle."""
        dtype = np.dtype(dtype)
        wanted = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        kept = self._kept.get(purpose)
        if kept is None or kept.nbytes < wanted:
            kept = self._kept[purpose] = np.empty(wanted + wanted // 4 + 64, np.uint8)
        return kept[:wanted].view(dtype).reshape(shape)
