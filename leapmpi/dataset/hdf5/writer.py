"""Writer of HDF5 files: contiguous, unfiltered arrays with digests, attributes with a checksum, full-disk errors."""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import h5py
import numpy as np

from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.attributes import Attributes, attributes_digest, plain_value
from leapmpi.version import VERSION


class _Disk(io.FileIO):
    """A file that HDF5 writes to. It stores the first error and then ignores all further writes.

    HDF5 crashes in C when its last writes fail, as they do on a full disk; so this file never reports a failure to it.
    """

    error: OSError | None = None

    def write(self, data) -> int:
        """Write all of `data`, unless an earlier write failed."""
        view = memoryview(data).cast("B")
        written = 0
        try:
            while self.error is None and written < len(view):
                written += super().write(view[written:])
        except OSError as error:
            self.error = error
        return len(view)

    def write_at(self, offset: int, data: memoryview) -> None:
        """Write all of `data` from byte `offset` on, without HDF5. Raises OSError."""
        try:
            while data:
                count = os.pwrite(self.fileno(), data, offset)
                data, offset = data[count:], offset + count
        except OSError as error:
            self.error = self.error or error
            raise

    def truncate(self, size: int | None = None) -> int:
        """Set the size of the file, unless an earlier write failed."""
        try:
            if self.error is None:
                super().truncate(size)
        except OSError as error:
            self.error = error
        return size or 0

    def raise_error(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass
class NewFile:
    """An HDF5 file being written: its root group `root`, and `disk`, which knows of failures that HDF5 did not see."""

    root: h5py.File
    disk: _Disk

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype | str) -> ArrayWriter:
        """Create a contiguous little-endian array with reserved space, to be written by blocks and finished."""
        # Contiguous, allocated at once and never filled: its bytes are written directly.
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_layout(h5py.h5d.CONTIGUOUS)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        properties.set_obj_track_times(False)

        # Groups in the name are made on the way.
        links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        links.set_create_intermediate_group(True)

        kind = h5py.h5t.py_create(np.dtype(dtype).newbyteorder("<"), logical=True)
        space = h5py.h5s.create_simple(shape)
        made = h5py.h5d.create(self.root.id, name.encode(), kind, space, dcpl=properties, lcpl=links)
        self.disk.raise_error()
        return ArrayWriter(self, h5py.Dataset(made))


class ArrayWriter:
    """One array of a new file, written by blocks of rows in order, without HDF5: threads may write one array each."""

    def __init__(self, file: NewFile, array: h5py.Dataset) -> None:
        self._file = file
        self._array = array
        self._dtype = array.dtype
        self._size = math.prod(array.shape) * array.dtype.itemsize
        self._begin = array.id.get_offset() if self._size else 0
        self._state = hashlib.blake2b(digest_size=names.DIGEST_BYTES)
        self._written = 0

    def append(self, block: np.ndarray) -> None:
        """Write the next rows. Raises OSError when the disk is full."""
        data = np.ascontiguousarray(block, self._dtype).reshape(-1).view(np.uint8)
        assert self._written + data.nbytes <= self._size, (self._array.name, self._written, data.nbytes, self._size)
        self._state.update(data)
        self._file.disk.write_at(self._begin + self._written, memoryview(data))
        self._written += data.nbytes

    def finish(self) -> None:
        """Write the digest, after all rows. No other thread may be using the file."""
        assert self._written == self._size, (self._array.name, self._written, self._size)
        _write_text(self._array, names.DIGEST, self._state.hexdigest())


@contextmanager
def new_file(path: Path) -> Iterator[NewFile]:
    """Create an HDF5 file whose metadata carry checksums, readable by HDF5 1.8 and later.

    Raises OSError if the disk is full, even if that shows only when the file is closed.
    """
    with _Disk(path, "x+") as disk:
        try:
            with h5py.File(disk, "w", libver=("v108", "v108")) as root:
                yield NewFile(root, disk)
        finally:
            disk.raise_error()


def write_array(
    file: NewFile, name: str, shape: tuple[int, ...], dtype: np.dtype | str, blocks: Iterable[np.ndarray]
) -> None:
    """Write `blocks` of rows, whose concatenation has `shape`, as one contiguous array with its digest."""
    array = file.array(name, shape, dtype)
    for block in blocks:
        array.append(block)
    array.finish()


def _oldest_version(attributes: Attributes) -> int:
    """Return the oldest version whose readers understand a file with these root attributes."""
    if names.VERTEX_TYPES in attributes:
        return 7
    if names.VERTEX_ORDER in attributes:
        return 6
    if names.FEATURE_DTYPE in attributes:
        return 5
    fourth = (names.EDGE_CLASSES, names.HAS_VERTEX_TIME, names.HELD_BACK, names.HAS_SPLIT_TIME, *names.NEGATIVE_COUNTS)
    if any(name in attributes for name in fourth):
        return 4
    third = (names.LABEL_KIND, names.HAS_EDGE_WEIGHT, names.HAS_EDGE_TIME, names.EDGE_FEATURE_DIM)
    if any(name in attributes for name in third):
        return 3
    return 2 if attributes.get(names.FEATURE_STORAGE) == names.SPARSE else 1


def write_attributes(file: NewFile, kind: str, attributes: Attributes) -> None:
    """Write the attributes that every file of leapmpi has, then `attributes`, and the digest of all of them."""
    every = {
        names.FORMAT: kind,
        names.VERSION: _oldest_version(attributes),
        names.CREATOR: f"leapmpi {VERSION}",
        names.CREATED: datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: plain_value(value) for name, value in attributes.items()},
    }
    for name, value in every.items():
        if isinstance(value, str):
            _write_text(file.root, name, value)
        else:
            file.root.attrs[name] = value
    _write_text(file.root, names.DIGEST, attributes_digest(every))


def _write_text(item: h5py.Group | h5py.Dataset, name: str, text: str) -> None:
    # Text of fixed length is stored in the object header, which has a checksum; other text goes to an unchecked heap.
    data = text.encode()
    item.attrs.create(name, data, dtype=h5py.string_dtype("utf-8", max(1, len(data))))
