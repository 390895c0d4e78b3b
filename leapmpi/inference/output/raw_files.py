"""Rows of one array in one file, written by all ranks at their places: NumPy's .npy, and HDF5."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from leapmpi.errors import DataError
from leapmpi.inference.output.delivery import Window
from leapmpi.inference.output.words import Words
from leapmpi.system.atomic_files import explain

PREDICTIONS, VERTICES, NAMES = "predictions", "vertices", "names"
"""Names of arrays in an HDF5 file."""


class Shape(NamedTuple):
    """The shape and type of the rows of a file."""

    shape: tuple[int, ...]
    """(rows,) or (rows, columns)."""
    dtype: np.dtype


Places = dict[str, int]
"""By array, the offset of its first byte in the file."""


class RawFile:
    """A file in which each rank writes ranges of whole rows, without locks: no two ranks write the same byte."""

    def __init__(self, rows: Shape, rank: int, words: Words | None = None) -> None:
        self.rows, self.rank, self.words = rows, rank, words or Words()

    @classmethod
    def check(cls) -> None:
        """Raise ConfigError where this kind of file cannot be written here."""

    def create(self, path: Path, about: dict[str, Any]) -> Places:
        """Make the file, on one rank; `about` describes its rows. Raises ResourceError, DataError."""
        shape, dtype = self.rows
        try:
            with open(path, "wb") as file:
                header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                start = file.tell()
                file.flush()
                _reserve(file.fileno(), start + math.prod(shape) * dtype.itemsize)
        except OSError as error:
            raise explain(error, path) from error
        return {PREDICTIONS: start}

    def open(self, path: Path, places: Places) -> None:
        """Open the file on every rank. Raises DataError where this rank does not see it."""
        self.path, self.places = path, places
        try:
            self._descriptor = os.open(path, os.O_WRONLY)
        except FileNotFoundError:
            raise DataError(
                f"{path} cannot be seen on all nodes; let --out name a file in a file system that all share"
            ) from None
        except OSError as error:
            raise explain(error, path) from error

    def write(self, window: Window) -> None:
        """Write the rows of `window` to their place. Raises ResourceError, DataError."""
        self._put(PREDICTIONS, window.first, window.rows)

    def close(self) -> None:
        """Flush this rank's writes to disk."""
        try:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
        except OSError as error:
            raise explain(error, self.path) from error

    def join(self, path: Path, ranks: int) -> None:
        """Make `path` whole when all ranks have closed it, on one rank. Raises ResourceError, DataError."""

    def drop(self, path: Path, ranks: int) -> None:
        """Remove what ranks wrote beside `path`, on one rank."""

    def _put(self, name: str, first: int, rows: np.ndarray) -> None:
        rows = np.ascontiguousarray(rows)
        left = memoryview(rows).cast("B")
        at = self.places[name] + first * (rows.nbytes // max(1, len(rows)))
        try:
            # A call may write less than it is given.
            while len(left):
                written = os.pwrite(self._descriptor, left, at)
                left, at = left[written:], at + written
        except OSError as error:
            raise explain(error, self.path) from error


class HDF5File(RawFile):
    """`predictions`, `vertices` (original ids) and `names`, each in one piece, so that ranks write without HDF5.

    `names` are texts of one length, where vertices have names. Names of classes are an attribute.
    """

    def create(self, path: Path, about: dict[str, Any]) -> Places:
        shape, dtype = self.rows
        try:
            with h5py.File(path, "w") as file:
                places = {
                    PREDICTIONS: _in_one_piece(file, PREDICTIONS, shape, dtype),
                    VERTICES: _in_one_piece(file, VERTICES, shape[:1], np.dtype(np.int64)),
                }
                if self.words.vertices is not None:
                    places[NAMES] = _in_one_piece(file, NAMES, shape[:1], h5py.string_dtype("utf-8", self._name_bytes))
                for key, value in about.items():
                    file.attrs[key] = value
                if self.words.classes is not None:
                    file.attrs["class_names"] = json.dumps(self.words.classes, ensure_ascii=False)
            with open(path, "rb+") as raw:
                _reserve(raw.fileno(), path.stat().st_size)
        except OSError as error:
            raise explain(error, path) from error
        return places

    def write(self, window: Window) -> None:
        super().write(window)
        self._put(VERTICES, window.first, window.vertices)
        if NAMES in self.places:
            names = [name.encode("utf-8", "surrogatepass") for name in self.words.of_vertices(window.vertices)]
            self._put(NAMES, window.first, np.array(names, f"S{self._name_bytes}"))

    @property
    def _name_bytes(self) -> int:
        """The bytes of a name in the file."""
        return 1 if self.words.vertices is None else max(1, self.words.vertices.longest)


def _in_one_piece(file: h5py.File, name: str, shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Make an array whose space is allocated at once; return its offset in the file."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    # Ranks write past HDF5: the space must be there at once, and fill values would be written in vain.
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    space, kind = h5py.h5s.create_simple(shape), h5py.h5t.py_create(dtype, logical=True)
    made = h5py.h5d.create(file.id, name.encode(), kind, space, dcpl=properties)
    return int(made.get_offset() or 0)


def _reserve(descriptor: int, size: int) -> None:
    """Allocate `size` bytes at once, so that a full disk is noticed before anything is computed."""
    if size:
        os.posix_fallocate(descriptor, 0, size)
