"""Comparison of the arrays of a file with their stored digests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.reader import opened
from leapmpi.dataset.hdf5.row_blocks import row_blocks
from leapmpi.errors import DataError


class Digests:
    """Digests of arrays, computed block by block, then compared with those stored in a file."""

    def __init__(self) -> None:
        self._states: dict[str, hashlib.blake2b] = {}

    def sink(self, name: str) -> Callable[[np.ndarray], None]:
        """Return a function that takes the blocks of array `name`, in order."""
        state = self._states[name] = hashlib.blake2b(digest_size=names.DIGEST_BYTES)
        return lambda block: state.update(np.ascontiguousarray(block).reshape(-1).view(np.uint8))

    def take(self, name: str, array: np.ndarray | None) -> None:
        """Take all of `array`; None is skipped."""
        if array is not None:
            sink = self.sink(name)
            for block in row_blocks(array):
                sink(block)

    def compare(self, path: Path, kind: str) -> None:
        """Raise DataError naming the first array of `path` without a stored digest, or whose digest differs."""
        with opened(path, kind) as (file, _):
            stored = {name: file.digest(name) for name in self._states}
        for name, digest in stored.items():
            if not isinstance(digest, str):
                raise DataError(f"{path}: array {name} has no digest; make the file again")
        for name, state in self._states.items():
            if stored[name] != state.hexdigest():
                raise DataError(
                    f"{path}: array {name} does not match its {names.DIGEST_ALGORITHM} digest: "
                    "its bytes are damaged; copy or make the file again"
                )


def check_digest(path: Path, kind: str, arrays: Mapping[str, np.ndarray | None]) -> None:
    """Compare the bytes of each mapped array of `arrays` with the digest stored in `path`.

    Raises DataError naming the first array that differs.
    """
    digests = Digests()
    for name, array in arrays.items():
        digests.take(name, array)
    digests.compare(path, kind)
