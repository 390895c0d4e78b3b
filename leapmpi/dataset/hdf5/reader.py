"""Reader of HDF5 files: attributes and arrays are checked, then arrays are mapped.

A row gather from a memory map is a hundred times faster than one by h5py, so every array is one contiguous run of
bytes. On damaged metadata h5py raises almost any error; here each becomes a DataError. Sizes are checked against the
file before anything is mapped or allocated. No HDF5 handle stays open after a call, and known facts of a file are not
read again (opened_file.py).
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import h5py
import numpy as np

from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.attributes import Attributes, attributes_digest, read_attributes
from leapmpi.dataset.hdf5.opened_file import FileFacts, OpenedFile, file_stamp, h5_file, keep_facts, known_facts
from leapmpi.errors import DataError, LeapmpiError, one_line
from leapmpi.system.regular_files import open_regular
from leapmpi.version import VERSION

Value = TypeVar("Value", str, int, float, bool)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert any error while reading `path` into a DataError."""
    # Sentences of this program pass; other errors get one, the commonest their own.
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
def opened(path: Path, kind: str) -> Iterator[tuple[OpenedFile, Attributes]]:
    """Open the HDF5 file at `path`, checked to be of format `kind` and a known version; yield it and its attributes.

    Raises DataError if it is missing, not HDF5, truncated, damaged, of another format or version.
    """
    with reading(path):
        if path.is_dir():
            raise DataError(f"{path} is a folder, not a file; a dataset is opened by its folder, a graph by its file")
        stamp = file_stamp(path)
        if (facts := known_facts(path, kind, stamp)) is not None:
            with OpenedFile(path, facts) as file:
                yield file, dict(facts.attributes)
            return

        # HDF5's own message for a foreign file is unclear.
        with open_regular(path) as handle:
            if handle.read(8) != b"\x89HDF\r\n\x1a\n":
                raise DataError(f"{path} is not an HDF5 file; {_MEND[kind]}")
        with h5_file(path) as h5:
            facts = FileFacts(_checked_attributes(h5, path, kind))
            keep_facts(path, kind, stamp, facts)
            yield OpenedFile(path, facts, h5), dict(facts.attributes)


def _checked_attributes(file: h5py.File, path: Path, kind: str) -> Attributes:
    """Return the root attributes without their digest, after checks of format, version and digest."""
    found = read_attributes(file)
    if found.get(names.FORMAT) != kind:
        what = found.get(names.FORMAT, "a foreign HDF5 file")
        raise DataError(f"{path} is {what}, not {kind}; {_MEND.get(kind, 'name another file')}")

    # The version before the digest, which another version may compute in another way.
    version = found.get(names.VERSION)
    if not isinstance(version, int) or version < names.OLDEST_VERSION:
        raise DataError(
            f"{path} has format version {version}, older than {names.OLDEST_VERSION}, the oldest this leapmpi reads; "
            "make it again with leapmpi-prep"
        )
    if version > names.FORMAT_VERSION:
        raise DataError(
            f"{path} has format version {version}, but this leapmpi ({VERSION}) reads up to "
            f"{names.FORMAT_VERSION}; update leapmpi, or make the file again with this one"
        )

    # Every later check relies on these attributes.
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


def required(attributes: Attributes, name: str, kind: type[Value], path: Path) -> Value:
    """Return attribute `name` of type `kind`; DataError if it is missing, of another type, or a negative number."""
    value = attributes.get(name)
    if not isinstance(value, kind) or (isinstance(value, int) and value < 0):
        raise DataError(f"{path}: attribute {name} is {value!r}, expected {kind.__name__}; make the file again")
    return value


def map_array(file: OpenedFile, name: str, dtypes: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Return array `name` from the read-only map of `file`, after checks of dtype, shape and place.

    Its dtype is one of `dtypes`. Raises DataError naming the file and the array.
    """
    path, array = file.path, file.array(name)
    if array.dtype.str not in [np.dtype(d).str for d in dtypes]:
        raise DataError(f"{path}: array {name} has dtype {array.dtype}, expected {' or '.join(dtypes)}")
    if array.shape != shape:
        raise DataError(f"{path}: array {name} has shape {array.shape}, expected {shape}; make the file again")

    # array.size would overflow.
    size = math.prod(shape) * array.dtype.itemsize
    if size == 0:
        return np.empty(shape, array.dtype)

    # The bytes must be one run inside the file.
    if array.offset is None:
        raise DataError(f"{path}: array {name} is not contiguous and cannot be mapped; write it without filters")
    end = array.offset + size
    if end > len(file.mapped):
        raise DataError(f"{path}: array {name} reaches past the end of the file: truncated; copy or make it again")
    return file.mapped[array.offset : end].view(array.dtype).reshape(shape)
