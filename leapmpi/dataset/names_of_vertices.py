"""Names that vertices had in the source: a text file beside a graph file or in a dataset, a line for each original id.

The attributes `vertex_names` and `vertex_names_digest` name the file and the BLAKE2b of its bytes.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np

from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.hdf5.names import DIGEST_BYTES
from leapmpi.errors import DataError

FILE, DIGEST = "vertex_names", "vertex_names_digest"
OF_DATASET = "vertex-names.txt"
"""Name of the file in a dataset."""

_READ_AT_ONCE = 1 << 24


class VertexNames:
    """The names in the file `path`, by original id. The file is mapped; memory holds 8 bytes for each name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            size = path.stat().st_size
            self._text: mmap.mmap | bytes = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if size else b""
        ends = [
            np.flatnonzero(np.frombuffer(self._text[start : start + _READ_AT_ONCE], np.uint8) == ord("\n")) + start
            for start in range(0, len(self._text), _READ_AT_ONCE)
        ]
        self._ends = np.concatenate(ends).astype(np.int64) if ends else np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def of(self, ids: Iterable[int]) -> list[str]:
        """Return the names of the original ids `ids`; an id without one stays a number, and -1 gives an empty name."""
        return [self._name(int(each)) for each in ids]

    @property
    def longest(self) -> int:
        """The bytes of the longest name."""
        return int(np.diff(self._ends, prepend=-1).max(initial=1)) - 1

    def ids_of(self, names: Iterable[str]) -> np.ndarray:
        """Return the original ids int64[k] of `names`, -1 for a name that no vertex has."""
        wanted = list(names)
        known = dict.fromkeys(wanted, -1)
        for number, name in enumerate(self.of(range(len(self)))):
            if name in known:
                known[name] = number
        return np.array([known[name] for name in wanted], np.int64)

    def _name(self, number: int) -> str:
        if not 0 <= number < len(self._ends):
            return "" if number < 0 else str(number)
        start = int(self._ends[number - 1]) + 1 if number else 0
        return self._text[start : int(self._ends[number])].decode("utf-8", "surrogatepass")


def open_names(path: Path, attributes: Attributes, check: bool = True) -> VertexNames | None:
    """Open the names that belong to the graph file or dataset.h5 `path` with these `attributes`; None without names.

    Raises DataError when their file is missing, or, with `check`, is not the one that was written with the graph.
    """
    if FILE not in attributes:
        return None
    file = _file_of(path, attributes)
    if missing := missing_names(path, attributes):
        raise DataError(f"{missing}; keep the two files together")
    if check and digest_of(file) != attributes.get(DIGEST):
        raise DataError(f"{file} does not hold the names of the vertices of {path}: their digests differ")
    return VertexNames(file)


def missing_names(path: Path, attributes: Attributes) -> str | None:
    """Describe that the file of the names of the graph file or dataset.h5 `path` is missing; None where it is not.

    Raises DataError for a name that is not that of a file beside `path`.
    """
    if FILE not in attributes or (file := _file_of(path, attributes)).is_file():
        return None
    return f"{file}, the names of the vertices of {path}, is missing"


def _file_of(path: Path, attributes: Attributes) -> Path:
    name = str(attributes[FILE])
    if not name or Path(name).name != name or "\0" in name:
        raise DataError(f"{path} names {name[:80]!r} as the file of its vertices' names, which is not a file beside it")
    return path.with_name(name)


def digest_of(path: Path) -> str:
    """Return the BLAKE2b of the file `path`, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=DIGEST_BYTES)).hexdigest()
