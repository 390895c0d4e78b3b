"""How arrays and attributes lie in HDF5 files: contiguous, unfiltered, digested, read by memory map.

A row gather from a memory map is a hundred times faster than h5py's, so every array is one plain run of bytes.
h5py raises almost anything on damaged metadata; all of it becomes a DataError here, and sizes are checked
against the file before anything is mapped or allocated. No HDF5 handle stays open after a call.
"""

from __future__ import annotations

import errno
import hashlib
import io
import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import h5py
import numpy as np

from leapmpi import __version__
from leapmpi.dataset import format as names
from leapmpi.errors import DataError, LeapmpiError, one_line

Attributes = dict[str, str | int | float | bool]

BLOCK_BYTES = 16 * 2**20

# Attributes end up in object headers with a checksum, which hold 64 KiB; a command line may be longer.
LONGEST_TEXT = 4000
_LARGEST_ATTRIBUTE = 1 << 16


def digest_of(blocks: Iterable[np.ndarray]) -> str:
    """The digest of the bytes of `blocks`, one after the other, as lower-case hex."""
    state = hashlib.blake2b(digest_size=names.DIGEST_BYTES)
    for block in blocks:
        state.update(np.ascontiguousarray(block).reshape(-1).view(np.uint8))
    return state.hexdigest()


def row_blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Views of `array` by blocks of rows of about `BLOCK_BYTES`."""
    for start, stop in row_ranges(len(array), array.nbytes // max(1, len(array))):
        yield array[start:stop]


def row_ranges(rows: int, row_bytes: int, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, int]]:
    """Cut `rows` rows of `row_bytes` bytes into ranges (start, stop) of about `block_bytes`."""
    step = max(1, block_bytes // max(1, row_bytes))
    for start in range(0, rows, step):
        yield start, min(rows, start + step)


def attributes_digest(attributes: Attributes) -> str:
    """The digest of root attributes: of the lines `name type value` in the order of their names."""
    state = hashlib.blake2b(digest_size=names.DIGEST_BYTES)
    for name in sorted(attributes):
        value = attributes[name]
        if isinstance(value, bool):
            text = f"bool {int(value)}"
        elif isinstance(value, int):
            text = f"int {value}"
        elif isinstance(value, float):
            text = f"float {struct.pack('<d', value).hex()}"
        else:
            text = f"str {value}"
        state.update(f"{name} {text}\n".encode())
    return state.hexdigest()


class _Disk(io.FileIO):
    """A file for HDF5 to write to, which keeps the first error to itself and then swallows what is written.

    HDF5 crashes in C when its last writes fail, as they do on a full disk; so it never learns of the failure.
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
        """Write all of `data` from byte `offset` on, past HDF5, and raise what goes wrong."""
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
        """Raise the error that was kept, if any."""
        if self.error is not None:
            raise self.error


class NewFile:
    """An HDF5 file being written: its root group `root`, and `raise_error` for failures that HDF5 did not see."""

    def __init__(self, root: h5py.File, disk: _Disk) -> None:
        self.root = root
        self.raise_error = disk.raise_error
        self.write_at = disk.write_at

    def array(self, name: str, shape: tuple[int, ...], dtype: str) -> ArrayWriter:
        """A new contiguous array, its place in the file reserved, to be written by blocks and finished."""
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_layout(h5py.h5d.CONTIGUOUS)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        properties.set_obj_track_times(False)
        links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        links.set_create_intermediate_group(True)
        kind, space = h5py.h5t.py_create(np.dtype(dtype), logical=True), h5py.h5s.create_simple(shape)
        made = h5py.h5d.create(self.root.id, name.encode(), kind, space, dcpl=properties, lcpl=links)
        self.raise_error()
        return ArrayWriter(self, h5py.Dataset(made))


class ArrayWriter:
    """One array of a new file, written by blocks of rows in their order, past HDF5: threads may write an array each."""

    def __init__(self, file: NewFile, array: h5py.Dataset) -> None:
        self._file, self._array = file, array
        self._dtype, self._size = array.dtype, math.prod(array.shape) * array.dtype.itemsize
        self._begin = array.id.get_offset() if self._size else 0
        self._state = hashlib.blake2b(digest_size=names.DIGEST_BYTES)
        self._written = 0

    def append(self, block: np.ndarray) -> None:
        """Write the next rows. Raises OSError when the disk is full."""
        data = np.ascontiguousarray(block, self._dtype).reshape(-1).view(np.uint8)
        assert self._written + data.nbytes <= self._size, (self._array.name, self._written, data.nbytes, self._size)
        self._state.update(data)
        self._file.write_at(self._begin + self._written, memoryview(data))
        self._written += data.nbytes

    def finish(self) -> None:
        """Store the digest, now that all rows are written. No other thread may be using the file."""
        assert self._written == self._size, (self._array.name, self._written, self._size)
        _write_text(self._array, names.DIGEST, self._state.hexdigest())


@contextmanager
def new_file(path: Path) -> Iterator[NewFile]:
    """A new HDF5 file whose metadata carry checksums, readable by HDF5 1.8 and later.

    Raises OSError when the disk is full, also where that shows only when the file is closed.
    """
    with _Disk(path, "x+") as disk:
        try:
            with h5py.File(disk, "w", libver=("v108", "v108")) as root:
                yield NewFile(root, disk)
        finally:
            disk.raise_error()


def write_array(file: NewFile, name: str, shape: tuple[int, ...], dtype: str, blocks: Iterable[np.ndarray]) -> None:
    """Write `blocks` of rows, which together have `shape`, as one contiguous array with its digest."""
    array = file.array(name, shape, dtype)
    for block in blocks:
        array.append(block)
    array.finish()


def write_attributes(file: NewFile, kind: str, attributes: Attributes) -> None:
    """Write the attributes every file of leapmpi has, `attributes`, and the digest of them all."""
    every = {
        names.FORMAT: kind,
        names.VERSION: names.version_of(attributes),
        names.CREATOR: f"leapmpi {__version__}",
        names.CREATED: datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: _plain(value) for name, value in attributes.items()},
    }
    for name, value in every.items():
        if isinstance(value, str):
            _write_text(file.root, name, value)
        else:
            file.root.attrs[name] = value
    _write_text(file.root, names.DIGEST, attributes_digest(every))


def _write_text(item: h5py.Group | h5py.Dataset, name: str, text: str) -> None:
    # Texts of fixed length lie beside their names, under a checksum; others would go to an unchecked heap.
    data = text.encode()
    item.attrs.create(name, data, dtype=h5py.string_dtype("utf-8", max(1, len(data))))


def _plain(value) -> str | int | float | bool:
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        cut = value.replace("\0", " ").encode("utf-8", "replace")[:LONGEST_TEXT]
        return cut.decode("utf-8", "ignore")
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    raise TypeError(f"an attribute must be text, a number or a truth value, not {type(value).__name__}")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong while reading `path` into a DataError."""
    try:
        yield
    except LeapmpiError:
        raise
    except PermissionError as error:
        raise DataError(f"{path}: not allowed to read it; change its permissions") from error
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist; check the path") from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise DataError(f"{path}: the name is too long; check the path") from error
        raise _damaged(path, error) from error
    except Exception as error:  # h5py answers damage with OSError, KeyError, RuntimeError, ValueError and more
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is damaged ({one_line(error)[:200]}); copy or make it again")


@contextmanager
def opened(path: Path, kind: str) -> Iterator[tuple[h5py.File, Attributes]]:
    """The HDF5 file at `path`, checked to be of format `kind` and of a version known here, and its attributes.

    Raises DataError when it is missing, not HDF5, truncated, damaged, of another format or version.
    """
    with reading(path):
        if path.is_dir():
            raise DataError(f"{path} is a folder, not a file; a dataset is opened by its folder, a graph by its file")
        with open(path, "rb") as handle:
            if handle.read(8) != b"\x89HDF\r\n\x1a\n":
                raise DataError(f"{path} is not an HDF5 file; {_MEND[kind]}")
        try:
            file = h5py.File(path, "r", locking=False)
        except OSError as error:
            what = "truncated" if "truncated" in str(error) else "damaged"
            raise DataError(f"{path} is {what} ({str(error)[:200]}); copy or make it again") from error
        with file:
            yield file, _checked_attributes(file, path, kind)


def _checked_attributes(file: h5py.File, path: Path, kind: str) -> Attributes:
    found = read_attributes(file)
    if found.get(names.FORMAT) != kind:
        what = found.get(names.FORMAT, "a foreign HDF5 file")
        raise DataError(f"{path} is {what}, not {kind}; {_MEND.get(kind, 'name another file')}")
    version = found.get(names.VERSION)
    if not isinstance(version, int) or version < names.OLDEST_VERSION:
        raise DataError(
            f"{path} has format version {version}, older than {names.OLDEST_VERSION}, the oldest this leapmpi reads; "
            "make it again with leapmpi-prep"
        )
    if version > names.FORMAT_VERSION:
        raise DataError(
            f"{path} has format version {version}, but this leapmpi ({__version__}) reads up to "
            f"{names.FORMAT_VERSION}; update leapmpi, or make the file again with this one"
        )
    stored = found.pop(names.DIGEST, None)
    if stored != attributes_digest(found):
        raise DataError(f"{path}: the root attributes do not match their digest; the file is damaged, make it again")
    return found


_MEND = {
    names.GRAPH_FORMAT: "make a graph file with leapmpi-prep import or synth",
    names.DATASET_FORMAT: "make a dataset with leapmpi-prep partition",
    names.PART_FORMAT: "make the dataset again with leapmpi-prep partition",
    names.WEIGHTS_FORMAT: "weights are written by leapmpi train into its run folder",
    names.CHECKPOINT_FORMAT: "checkpoints are written by leapmpi train into its run folder",
}


def read_attributes(group: h5py.Group | h5py.Dataset) -> Attributes:
    """All attributes of `group` as plain Python values. Raises ValueError for one that is larger than any of ours."""
    for name in group.attrs:
        size = group.attrs.get_id(name).get_storage_size()
        if size > _LARGEST_ATTRIBUTE:
            raise ValueError(f"attribute {name} takes {size} bytes")
    return {name: _plain(value) for name, value in group.attrs.items()}


def array_in(file: h5py.File, path: Path, name: str) -> h5py.Dataset:
    """Array `name` (a path such as group/array) of `file` itself: no link is followed to another name or file.

    Raises DataError when it is missing, damaged, a link, or keeps its numbers outside the file.
    """
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
        raise DataError(f"{path}: array {name} lies in other files, which are not opened; write it into this one")
    return place


def required(attributes: Attributes, name: str, kind: type, path: Path):
    """Attribute `name` of type `kind`; DataError when it is missing, of another type, or a negative number."""
    value = attributes.get(name)
    if not isinstance(value, kind) or (kind is int and value < 0):
        raise DataError(f"{path}: attribute {name} is {value!r}, expected {kind.__name__}; make the file again")
    return value


def map_array(file: h5py.File, path: Path, name: str, dtypes: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Array `name` as a read-only memory map, checked to have one of `dtypes` and `shape` and to lie in the file.

    Raises DataError naming the file and the array.
    """
    array = array_in(file, path, name)
    if array.dtype.str not in [np.dtype(d).str for d in dtypes]:
        raise DataError(f"{path}: array {name} has dtype {array.dtype}, expected {' or '.join(dtypes)}")
    if array.shape != shape:
        raise DataError(f"{path}: array {name} has shape {array.shape}, expected {shape}; make the file again")
    # Not array.size, which overflows.
    size = math.prod(shape) * array.dtype.itemsize
    if size == 0:
        return np.empty(shape, array.dtype)
    offset = array.id.get_offset()
    if array.chunks is not None or offset is None:
        raise DataError(f"{path}: array {name} is not contiguous and cannot be mapped; write it without filters")
    if offset + size > path.stat().st_size:
        raise DataError(f"{path}: array {name} reaches past the end of the file: truncated; copy or make it again")
    return np.memmap(path, array.dtype, "r", offset, shape)


def stored_digest(file: h5py.File, path: Path, name: str) -> str:
    """The digest stored with array `name`."""
    value = read_attributes(array_in(file, path, name)).get(names.DIGEST)
    if not isinstance(value, str):
        raise DataError(f"{path}: array {name} has no digest; make the file again")
    return value


class Digests:
    """The digests of arrays as their blocks come by; in the end they are compared with those stored in a file."""

    def __init__(self) -> None:
        self._states: dict[str, hashlib.blake2b] = {}

    def sink(self, name: str) -> Callable[[np.ndarray], None]:
        """What takes the blocks of array `name`, in their order."""
        state = self._states[name] = hashlib.blake2b(digest_size=names.DIGEST_BYTES)
        return lambda block: state.update(np.ascontiguousarray(block).reshape(-1).view(np.uint8))

    def take(self, name: str, array: np.ndarray | None) -> None:
        """Take a whole array, if there is one."""
        if array is not None:
            sink = self.sink(name)
            for block in row_blocks(array):
                sink(block)

    def compare(self, path: Path, kind: str) -> None:
        """Raise DataError naming the first array of `path` whose stored digest is another."""
        with opened(path, kind) as (file, _):
            stored = {name: stored_digest(file, path, name) for name in self._states}
        for name, state in self._states.items():
            if stored[name] != state.hexdigest():
                raise DataError(
                    f"{path}: array {name} does not match its {names.DIGEST_ALGORITHM} digest: "
                    "its bytes are damaged; copy or make the file again"
                )


def check_digest(path: Path, kind: str, arrays: dict[str, np.ndarray | None]) -> None:
    """Compare the bytes of each mapped array of `arrays` with the digest stored in `path`.

    Raises DataError naming the first array that differs.
    """
    digests = Digests()
    for name, array in arrays.items():
        digests.take(name, array)
    digests.compare(path, kind)
