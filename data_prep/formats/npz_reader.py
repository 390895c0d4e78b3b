"""One .npz archive, read array by array, with messages instead of tracebacks and pickles that cannot run anything."""

from __future__ import annotations

import errno
import math
import shutil
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from data_prep.edges.raw_graph import SparseRows
from data_prep.formats.restricted_unpickler import load_pickle
from data_prep.workspace import Workspace, require_whole
from leapmpi.errors import DataError

MAPPED_FROM = 64 * 2**20
"""Bytes from which on an array is mapped rather than read."""

_TIMES_SPARSE = 3
"""Memory that a sparse matrix takes while it is read, as a multiple of its entries as saved; measured: 2.3."""

_MOST_DIMENSIONS = 64
_READ_BYTES = 4 * 2**20
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, NotImplementedError, RuntimeError)


@contextmanager
def opened_zip(path: Path, what: str, hint: str = "") -> Iterator[zipfile.ZipFile]:
    """Open the archive at `path`; DataError "`what` (reason)`hint`" for whatever zipfile raises when it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            # zipfile would allocate as many bytes as a damaged entry claims to have.
            if any(entry.compress_size > path.stat().st_size for entry in archive.infolist()):
                raise zipfile.BadZipFile("an entry is longer than the archive")
            yield archive
    except (*_DAMAGE, OSError) as error:
        # EINVAL: a damaged offset is not a place in a file. Other OSErrors name the file that they concern.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise DataError(f"{what} ({error}){hint}") from error


def npz_names(path: Path) -> frozenset[str]:
    """List the arrays in the archive at `path`; empty when it is not a readable archive (for format detection)."""
    try:
        with zipfile.ZipFile(path) as archive:
            return frozenset(name.removesuffix(".npy") for name in archive.namelist())
    except (OSError, *_DAMAGE):
        return frozenset()


def unpacked(path: Path, archive: zipfile.ZipFile, member: str, workspace: Workspace) -> tuple[Path, int]:
    """Return the file that holds the bytes of `member`, and their offset.

    It is the archive `path` itself, or a temporary file of `workspace` where `member` is compressed. The checksum of
    `member` is verified. Raises what zipfile raises for a damaged archive.
    """
    about = archive.getinfo(member)
    with archive.open(member) as file:
        if about.compress_type == zipfile.ZIP_STORED:
            while file.read(_READ_BYTES):
                pass  # at the end zipfile compares checksums
            # The bytes come after the entry's own header, name and extras.
            with path.open("rb") as whole:
                whole.seek(about.header_offset)
                _, name, extra = _LOCAL_HEADER.unpack(whole.read(_LOCAL_HEADER.size))
            return path, about.header_offset + _LOCAL_HEADER.size + name + extra
        workspace.take(about.file_size, f"{path}: unpacking {member}")
        aside = workspace.path("unpacked")
        with aside.open("wb") as out:
            shutil.copyfileobj(file, out, _READ_BYTES)
        return aside, 0


def with_rows(found: np.ndarray | SparseRows, name: str) -> np.ndarray | SparseRows:
    """Return `found`, called `name` in messages. Raises DataError where it is a single value without rows."""
    if isinstance(found, np.ndarray) and found.ndim == 0:
        raise DataError(f"{name} is a single value; expected an array with rows")
    return found


class NamedArrays:
    """Arrays by their `names`, each read on demand from `path`, a file or a folder; `taken` are those read so far.

    workspace: where to unpack what is read; without one all arrays are read into memory.
    """

    def __init__(self, path: Path, names: frozenset[str], workspace: Workspace | None = None) -> None:
        self.path = path
        self.names = names
        self.taken: set[str] = set()
        self._workspace = workspace

    def label(self, name: str) -> str:
        """Return the name of the array `name` in messages."""
        return f"{self.path}: array {name!r}"

    def read(self, name: str) -> np.ndarray | SparseRows:
        """Read the array `name`. Raises DataError when it is missing or damaged."""
        raise NotImplementedError

    def unused(self, besides: Iterable[str] = ()) -> list[str]:
        """Name the arrays that were not taken, `besides` some, in a note; none where there are none."""
        others = sorted(self.names - self.taken - {*besides})
        return [f"{self.path.name}: not used: {', '.join(others)}"] if others else []

    def rows(self, name: str) -> np.ndarray | SparseRows:
        """Read as `read`, for arrays that must have rows."""
        return with_rows(self.read(name), self.label(name))

    def array(self, name: str) -> np.ndarray:
        """Read as `rows`, for arrays that must be dense numbers."""
        return self._numbers(name, self.rows(name))

    def _numbers(self, name: str, found: np.ndarray | SparseRows) -> np.ndarray:
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "biuf":
            raise DataError(f"{self.label(name)} must be an array of numbers")
        return found

    def number(self, name: str) -> int:
        """Read the array `name` as one whole number."""
        found = self._numbers(name, self.read(name))
        if found.size != 1:
            raise DataError(f"{self.label(name)} must be a single number, but its shape is {found.shape}")
        value = found.reshape(-1)[0].item()
        if value != value or abs(value) >= 2**63 or value != int(value):
            raise DataError(f"{self.label(name)} must be a whole number, but it is {value}")
        return int(value)

    def first(self, *names: str) -> str | None:
        """Return the first of `names` that the source holds, or None."""
        return next((name for name in names if name in self.names), None)

    def sparse(self, prefix: str, kind: str = "csr") -> SparseRows:
        """Read the sparse matrix in PREFIXdata, PREFIXindices, PREFIXindptr, PREFIXshape (row, col if coo)."""
        keys = ("shape", "data", "row", "col") if kind == "coo" else ("shape", "data", "indices", "indptr")
        name = f"{self.path}: {prefix}*"
        parts = {key: self.read(prefix + key) if key == "data" else self.array(prefix + key) for key in keys}
        require_whole(name, sum(parts[key].nbytes for key in keys[1:3]), _TIMES_SPARSE, self._workspace)
        return SparseRows.from_parts(kind, parts, name)


class NpzFile(NamedArrays):
    """The arrays of one archive: large ones are mapped, compressed ones unpacked before.

    Raises DataError when the file is not a zip archive or is damaged.
    """

    def __init__(self, path: Path, workspace: Workspace | None = None) -> None:
        with opened_zip(path, f"{path} is truncated or not an .npz archive") as archive:
            names = frozenset(name.removesuffix(".npy") for name in archive.namelist())
        super().__init__(path, names, workspace)

    def read(self, name: str) -> np.ndarray | SparseRows:
        """Read the array `name`; a pickled scipy matrix becomes SparseRows.

        Raises DataError when it is missing, damaged, or pickles anything but arrays and matrices.
        """
        if name not in self.names:
            raise DataError(f"{self.path} has no array {name!r}; it holds {', '.join(sorted(self.names)) or 'nothing'}")
        self.taken.add(name)
        label, member = self.label(name), f"{name}.npy"
        with opened_zip(self.path, f"{label} is truncated or damaged") as archive:
            size = archive.getinfo(member).file_size
            with archive.open(member) as file:
                # Objects are pickled: only the restricted unpickler may read them.
                if read_header(file, size)[2].hasobject:
                    require_whole(label, size, _TIMES_SPARSE, self._workspace)
                    found = load_pickle(file, label)
                    if not isinstance(found, np.ndarray | SparseRows):
                        raise DataError(f"{label} holds a {type(found).__name__}, not an array or a sparse matrix")
                    return found
            if self._workspace and size >= MAPPED_FROM:
                return self._mapped(archive, member, self._workspace)
            with archive.open(member) as file, warnings.catch_warnings(action="ignore"):
                return np.lib.format.read_array(file, allow_pickle=False)

    def _mapped(self, archive: zipfile.ZipFile, member: str, workspace: Workspace) -> np.ndarray:
        """Map a large array from the archive itself, or from a temporary file if it is compressed there."""
        path, start = unpacked(self.path, archive, member, workspace)
        with path.open("rb") as file:
            file.seek(start)
            shape, by_columns, dtype = read_header(file, archive.getinfo(member).file_size)
            begin = file.tell()
        if dtype.hasobject:
            raise ValueError("its objects would be addresses of memory")
        return np.memmap(path, dtype, "r", begin, shape, "F" if by_columns else "C")


def read_header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Read shape, whether by columns, and dtype of an .npy file of `size` bytes, from the beginning of `file`.

    Raises ValueError where it is damaged, or fewer numbers follow than it states: numpy would make room for all.
    """
    begin = file.tell()
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"its .npy version {version[0]}.{version[1]} is unknown")
    # Version 3 differs from 2 in names of fields alone, which no array here has.
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        with warnings.catch_warnings(action="ignore"):  # Python's, of odd texts
            shape, by_columns, dtype = read(file)
    except OSError:
        raise
    except Exception as error:  # whatever a damaged text leads Python's parser to
        raise ValueError(f"its header is none: {error or type(error).__name__}") from error
    whole = all(type(length) is int and length >= 0 for length in shape) and len(shape) <= _MOST_DIMENSIONS
    if not whole or (0 in shape and math.prod(filter(None, shape)) * dtype.itemsize >= 2**63):
        raise ValueError("its header states no shape")
    if not dtype.hasobject and file.tell() - begin + math.prod(shape) * dtype.itemsize > size:
        raise ValueError("it is shorter than its header says")
    return shape, by_columns, dtype
