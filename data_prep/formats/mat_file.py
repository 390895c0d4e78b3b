"""Variables of a MATLAB file of version 5, 6 or 7: sparse and full matrices of numbers, read without scipy.

The layout is that of MathWorks' "MAT-File Format", R2023b, chapter 1: elements of a tag (type, bytes) and data, padded
to 8 bytes, possibly compressed by zlib. Sizes are checked against the bytes that exist before they are used: scipy's
reader (1.17) allocates gigabytes for a damaged size, and crashes on some damaged files.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.edges.raw_graph import SparseRows
from data_prep.workspace import Workspace, require_whole
from leapmpi.errors import DataError, counted

_HEADER_BYTES = 128
_LARGEST_RATIO = 1100
"""zlib packs at most 1,032 bytes into one."""

_TIMES_UNPACKED = 3
"""Bytes held per byte of unpacked variables."""

_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_SPARSE_CLASS, _FULL_CLASSES = 5, range(6, 16)
_COMPLEX = 0x800
"""The bit of array flags that says that imaginary parts follow."""
_CLASS_NAMES = {1: "cell", 2: "struct", 3: "object", 4: "char"}


@dataclass(frozen=True)
class SparseColumns:
    """A sparse matrix in compressed columns, as MATLAB holds it: indptr int64[columns + 1], row int64[k], data [k]."""

    shape: tuple[int, int]
    indptr: np.ndarray
    row: np.ndarray
    data: np.ndarray

    @property
    def column(self) -> np.ndarray:
        """int64[k]: the column of each entry."""
        return np.repeat(np.arange(self.shape[1]), np.diff(self.indptr))

    def by_rows(self) -> SparseRows:
        """Return the same matrix in compressed rows."""
        return SparseRows.from_triplets(self.row, self.column, self.data, self.shape)


Variable = SparseColumns | np.ndarray | str
"""A matrix; or, of a variable that is not read, the name of its MATLAB class."""


class _Elements:
    """The elements in `data`, one after the other. Faults name the byte in the file, or in the unpacked element."""

    def __init__(self, data: memoryview, order: str, place: str) -> None:
        self.data = data
        self.order = order
        self.place = place
        self.position = 0

    def fault(self, what: str) -> DataError:
        return DataError(f"{self.place}{self.position}: {what}; is the file damaged or truncated?")

    def more(self) -> bool:
        return self.position < len(self.data)

    def next(self) -> tuple[int, memoryview]:
        """Read type and data of the next element."""
        if len(self.data) - self.position < 8:
            raise self.fault("an element is cut off")
        kind, size = (int(word) for word in np.frombuffer(self.data, f"{self.order}u4", 2, self.position))
        start = self.position + 8
        padded = kind != _COMPRESSED
        if kind >> 16:  # a short element: size, type and data in 8 bytes
            kind, size, start = kind & 0xFFFF, kind >> 16, self.position + 4
            if size > 4:
                raise self.fault(f"a short element of {counted(size, 'byte')}")

        # Never beyond the end; then to the next multiple of 8 bytes.
        if size > len(self.data) - start:
            raise self.fault(f"an element of {counted(size, 'byte')}, but {len(self.data) - start:,} are left")
        self.position = start + size
        if padded and self.position % 8:
            self.position += 8 - self.position % 8
        return kind, self.data[start : start + size]

    def numbers(self, what: str) -> np.ndarray:
        """Read the next element, which must hold numbers, in its stored dtype and byte order."""
        kind, data = self.next()
        if kind not in _NUMBERS or len(data) % np.dtype(_NUMBERS[kind]).itemsize:
            raise self.fault(f"{what} should be numbers, not type {kind}")
        return np.frombuffer(data, f"{self.order}{_NUMBERS[kind]}")


def read_mat(path: Path, workspace: Workspace | None = None) -> dict[str, Variable]:
    """Read all variables of the file `path` by name.

    Raises DataError naming the byte offset of the first fault, ResourceError when `workspace` may not hold what the
    file unpacks to.
    """
    # The header: byte order, and the version.
    content = memoryview(path.read_bytes())
    order = {b"IM": "<", b"MI": ">"}.get(bytes(content[126:128]))
    if bytes(content[:10]) == b"MATLAB 7.3" or bytes(content[1:4]) == b"HDF":
        raise DataError(f"{path} is of MATLAB's version 7.3 (HDF5); save it again with the option -v7")
    if len(content) < _HEADER_BYTES or order is None:
        raise DataError(f"{path} is not a MATLAB file of version 5 to 7 (its header ends with no byte order)")

    # A variable per element, compressed or not.
    elements = _Elements(content, order, f"{path}, byte ")
    elements.position = _HEADER_BYTES
    found, held = {}, 0
    while elements.more():
        start = elements.position
        kind, data = elements.next()
        place = f"{path}, byte {start + 8} + "
        if kind == _COMPRESSED:
            kind, data = _unpacked(data, order, f"{path}, byte {start}", held, workspace)
            held += len(data)
            place = f"{path}, element at byte {start}, unpacked byte "
        if kind != _MATRIX:
            raise DataError(f"{path}, byte {start}: an element of type {kind} where a variable should be")
        name, found[name] = _variable(_Elements(data, order, place))
    return found


def _unpacked(
    data: memoryview, order: str, place: str, held: int, workspace: Workspace | None
) -> tuple[int, memoryview]:
    """Unpack type and data of the element that is compressed in `data`; `held` bytes have been unpacked before."""
    try:
        unpacker = zlib.decompressobj()
        tag = unpacker.decompress(data, 8)
        kind, size = (int(word) for word in np.frombuffer(tag, f"{order}u4"))
        # A small file may claim any size: no memory is taken that its bytes cannot fill.
        if size > _LARGEST_RATIO * len(data):
            raise ValueError(f"{counted(size, 'byte')} cannot be compressed to {len(data):,}")
        require_whole(place, held + size, _TIMES_UNPACKED, workspace)
        content = unpacker.decompress(unpacker.unconsumed_tail, size) if size else b""
    except (zlib.error, ValueError) as error:
        raise DataError(f"{place}: a compressed element is damaged ({error})") from error
    if len(content) != size:
        raise DataError(f"{place}: a compressed element ends after {len(content):,} of {counted(size, 'byte')}")
    return kind, memoryview(content)


def _variable(elements: _Elements) -> tuple[str, Variable]:
    """Read name and content of the matrix that consists of these elements."""
    # What every matrix begins with.
    flags = elements.numbers("array flags")
    shape = elements.numbers("dimensions")
    name = bytes(elements.next()[1]).decode("latin-1")
    if len(flags) != 2 or len(shape) < 2 or (shape.astype(np.int64) < 0).any() or shape.dtype.kind == "f":
        raise elements.fault("array flags or dimensions are damaged")

    # Sparse and full matrices of numbers are read, other classes only named.
    kind = int(flags[0]) & 0xFF
    sizes = tuple(int(size) for size in shape)
    if kind == _SPARSE_CLASS:
        return name, _sparse(elements, sizes, name, bool(int(flags[0]) & _COMPLEX))
    if kind not in _FULL_CLASSES:
        return name, _CLASS_NAMES.get(kind, f"class {kind}")
    values = _values(elements, name, bool(int(flags[0]) & _COMPLEX))
    if math.prod(sizes) != len(values):
        raise elements.fault(f"variable {name!r} of shape {sizes} has {counted(len(values), 'value')}")
    return name, values.reshape(sizes, order="F")


def _values(elements: _Elements, name: str, complex_parts: bool) -> np.ndarray:
    """Read the numbers of a variable, from one element or, of complex ones, from two."""
    values = elements.numbers(f"variable {name!r}")
    if not complex_parts:
        return values
    imaginary = elements.numbers(f"variable {name!r}")
    if values.shape != imaginary.shape:
        raise elements.fault(f"variable {name!r} has {len(values):,} real and {len(imaginary):,} imaginary parts")
    return values + 1j * imaginary


def _sparse(elements: _Elements, shape: tuple[int, ...], name: str, complex_parts: bool) -> SparseColumns:
    """Read the sparse matrix in the next elements. Raises DataError where columns and entries contradict each other."""
    row, indptr = (elements.numbers(f"variable {name!r}").astype(np.int64) for _ in range(2))
    data = _values(elements, name, complex_parts) if elements.more() else np.empty(0)
    # More entries may be allotted than the columns hold.
    fits = len(shape) == 2 and len(indptr) == shape[1] + 1 and indptr[0] == 0 and (np.diff(indptr) >= 0).all()
    if not fits or indptr[-1] > min(len(row), len(data)):
        raise elements.fault(f"the columns of the sparse variable {name!r} do not fit its entries")
    row, data = row[: indptr[-1]], data[: indptr[-1]]
    if len(row) and not 0 <= row.min() <= row.max() < shape[0]:
        raise elements.fault(f"the sparse variable {name!r} has an entry outside its {counted(shape[0], 'row')}")
    return SparseColumns(shape, indptr, row, data)
