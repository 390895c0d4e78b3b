"""Rows of several files, joined to one array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_prep.workspace import Workspace
from leapmpi.errors import DataError

_BYTES_AT_ONCE = 16 * 2**20


def joined(arrays: Sequence[np.ndarray], names: Sequence[str], workspace: Workspace | None = None) -> np.ndarray:
    """Join the rows of all `arrays`, called `names` in messages, in a temporary file of `workspace` if given.

    Raises DataError where they differ in type or width.
    """
    first = arrays[0]
    for array, name in zip(arrays, names, strict=True):
        if array.dtype != first.dtype or array.shape[1:] != first.shape[1:]:
            raise DataError(
                f"{name} holds {array.dtype} of shape {list(array.shape)}, but {names[0]} {first.dtype} of shape "
                f"{list(first.shape)}; all must have one type and width"
            )
    if len(arrays) == 1:
        return first
    shape = (sum(map(len, arrays)), *first.shape[1:])
    out = np.empty(shape, first.dtype) if workspace is None else workspace.array("joined", shape, first.dtype)

    # Blocks of rows: the arrays may be mapped and larger than memory.
    rows = max(1, _BYTES_AT_ONCE // max(1, first.dtype.itemsize * int(np.prod(first.shape[1:]))))
    place = 0
    for array in arrays:
        for start in range(0, len(array), rows):
            block = array[start : start + rows]
            out[place : place + len(block)] = block
            place += len(block)
    return out
