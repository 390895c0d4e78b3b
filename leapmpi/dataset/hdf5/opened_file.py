"""Cache of facts about the arrays of HDF5 files, read once in a process while the file is unchanged.

A job opens its files repeatedly: at the start, to verify them, for each of several models or runs. HDF5 takes a
millisecond or more each time; reading the times of a file takes microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import h5py
import numpy as np

from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.attributes import Attributes, read_attributes
from leapmpi.errors import DataError

Stamp = tuple[int, ...]

_MOST_FILES = 4096
"""Most files with kept facts; the last ones are kept."""

_SETTLED_SECONDS = 0.1
"""A file that was written later than so long ago may be written again without a change of its times, which tick."""


@dataclass(frozen=True)
class ArrayPlace:
    """Place of an array in its file, with its type and shape."""

    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int | None
    """Bytes from the beginning of the file; None if the array is not one run of bytes."""


@dataclass(frozen=True)
class ArrayFacts:
    """Place of an array, and its stored digest, None without."""

    place: ArrayPlace
    digest: object


@dataclass
class FileFacts:
    """Known facts of a file: root attributes without their digest, and the arrays read so far."""

    attributes: Attributes
    arrays: dict[str, ArrayFacts] = field(default_factory=dict)


_known: dict[tuple[Path, str], tuple[Stamp, FileFacts]] = {}


def file_stamp(path: Path) -> Stamp:
    """Return a stamp that changes when the file at `path` is written or replaced. Raises OSError."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def known_facts(path: Path, kind: str, stamp: Stamp) -> FileFacts | None:
    """Return the known facts of the file of format `kind` at `path` if it still has `stamp`."""
    before, facts = _known.get((path, kind), (None, None))
    return facts if before == stamp else None


def keep_facts(path: Path, kind: str, stamp: Stamp, facts: FileFacts) -> None:
    """Keep the facts of a file that had `stamp` before it was read, unless it was written just now."""
    _known.pop((path, kind), None)
    if max(stamp[-2:]) < (time.time() - _SETTLED_SECONDS) * 1e9:
        _known[path, kind] = stamp, facts
        while len(_known) > _MOST_FILES:
            del _known[next(iter(_known))]


@contextmanager
def h5_file(path: Path) -> Iterator[h5py.File]:
    """Open the HDF5 file at `path` for reading. Raises DataError if it cannot be opened."""
    try:
        file = h5py.File(path, "r", locking=False)
    except OSError as error:
        what = "truncated" if "truncated" in str(error) else "damaged"
        raise DataError(f"{path} is {what} ({str(error)[:200]}); copy or make it again") from error
    with file:
        yield file


class OpenedFile(ExitStack):
    """File with known `facts`. HDF5 opens it only for missing facts, and this context closes it."""

    def __init__(self, path: Path, facts: FileFacts, h5: h5py.File | None = None) -> None:
        super().__init__()
        self.path, self._facts, self._h5 = path, facts, h5

    @cached_property
    def mapped(self) -> np.memmap:
        """All bytes of the file, mapped read-only once for all of its arrays, uint8[size]."""
        return np.memmap(self.path, np.uint8, "r")

    def array(self, name: str) -> ArrayPlace:
        """Return the place of array `name`. Raises DataError as `array_in`."""
        return self._known(name).place

    def digest(self, name: str) -> object:
        """Return the stored digest of array `name`; None without. Raises DataError as `array_in`."""
        return self._known(name).digest

    def _known(self, name: str) -> ArrayFacts:
        # Place and digest at once: to find an array again takes longer than to read both.
        if name not in self._facts.arrays:
            if self._h5 is None:
                self._h5 = self.enter_context(h5_file(self.path))
            array = array_in(self._h5, self.path, name)
            self._facts.arrays[name] = ArrayFacts(_place(array), read_attributes(array).get(names.DIGEST))
        return self._facts.arrays[name]


def _place(array: h5py.Dataset) -> ArrayPlace:
    return ArrayPlace(array.dtype, array.shape, None if array.chunks is not None else array.id.get_offset())


def array_in(file: h5py.File, path: Path, name: str) -> h5py.Dataset:
    """Return array `name` (a path such as group/array) of `file` itself: links are not followed.

    Raises DataError if it is missing, damaged, a link, or keeps its numbers outside the file.
    """
    # Group by group, so that a link is seen before it is followed.
    place = file
    for part in name.split("/"):
        link = place.get(part, getlink=True) if isinstance(place, h5py.Group) and part not in ("", ".", "..") else None
        if isinstance(link, h5py.ExternalLink | h5py.SoftLink):
            raise DataError(f"{path}: array {name} is a link to another place, which is not followed; make it again")
        if not isinstance(link, h5py.HardLink):
            raise DataError(f"{path}: array {name} is missing or damaged; copy or make the file again")
        place = place[part]

    if not isinstance(place, h5py.Dataset):
        raise DataError(f"{path}: array {name} is missing or damaged; copy or make the file again")
    if place.external or place.is_virtual:
        raise DataError(f"{path}: array {name} is stored in other files, which are not opened; write it into this one")
    return place
