"""Pickles read without trust: numpy arrays, scipy sparse matrices and plain containers, nothing else.

A pickle is a program. This reader admits only the constructors listed in `_admitted`; scipy's matrix classes are
replaced by stand-ins that merely keep their arrays, so no scipy is needed and its old module paths go on working.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import BinaryIO

import numpy as np

from data_prep.edges.raw_graph import SparseRows, whole_numbers
from leapmpi.errors import DataError, ResourceError


class RefusedPickle(DataError):
    """A pickle that asks for something other than arrays and matrices."""


class StandIn:
    """Stands for an object of a class that is not imported: keeps the attributes that its pickle holds."""

    def __setstate__(self, state: object) -> None:
        self.state = state


_SPARSE = {kind: type(f"_{kind}", (StandIn,), {"kind": kind}) for kind in ("csr", "csc", "coo")}
"""Stand-ins for scipy's matrices and arrays."""


def _encode(text: str, encoding: str) -> bytes:
    """What Python 3 writes for bytes in old pickle protocols: always Latin-1."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"unexpected encoding {encoding!r}")
    return text.encode("latin1")


@cache
def _admitted() -> dict[tuple[str, str], Callable]:
    """What a pickle may name: module and name -> the function that is called instead."""
    # Taken from numpy's own __reduce__, because the modules these functions live in moved between versions.
    reconstruct = np.empty(0).__reduce__()[0]
    from_buffer = np.empty(0).__reduce_ex__(5)[0]
    scalar = np.float64(0).__reduce__()[0]
    table: dict[tuple[str, str], Callable] = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): _encode,
        ("collections", "defaultdict"): defaultdict,
        ("__builtin__", "list"): list,
        ("builtins", "list"): list,
    }

    # Modules of numpy and scipy by their old and new names.
    for core in ("numpy.core", "numpy._core"):
        table[f"{core}.multiarray", "_reconstruct"] = reconstruct
        table[f"{core}.multiarray", "scalar"] = scalar
        table[f"{core}.numeric", "_frombuffer"] = from_buffer
    for kind, stand_in in _SPARSE.items():
        for module in (f"scipy.sparse.{kind}", f"scipy.sparse._{kind}"):
            table[module, f"{kind}_matrix"] = stand_in
            table[module, f"{kind}_array"] = stand_in
    return table


def of_numpy() -> dict[tuple[str, str], Callable]:
    """The constructors of numpy's arrays and numbers."""
    return {key: made for key, made in _admitted().items() if key[0].partition(".")[0] in ("numpy", "_codecs")}


_PIECE = 1 << 20
"""Bytes read at a time: a file would make room for as many as a damaged length says."""


class _WholeLines:
    """A file whose last line may not be cut off, and which never takes much more memory than it holds."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def read(self, count: int) -> bytes:
        if count <= _PIECE:
            return self.file.read(count)
        pieces = []
        while count and (piece := self.file.read(min(count, _PIECE))):
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def readline(self) -> bytes:
        line = self.file.readline()
        if not line.endswith(b"\n"):
            raise EOFError("Ran out of input")
        return line


class CarefulUnpickler(pickle._Unpickler):
    """Python's own unpickler: the compiled one allocates a table as long as a damaged index says.

    Latin-1 is what keeps the bytes of arrays that Python 2 pickled as strings.
    """

    def __init__(self, file: BinaryIO, name: str, admitted: Mapping[tuple[str, str], object], content: str) -> None:
        super().__init__(_WholeLines(file), encoding="latin1")
        self._name, self._admitted, self._content = name, admitted, content

    def find_class(self, module: str, name: str) -> object:
        """What is admitted under this name. Raises RefusedPickle for any other; `content` says what is read."""
        if (module, name) in self._admitted:
            return self._admitted[module, name]
        raise RefusedPickle(
            f"{self._name}: its pickle asks for {module}.{name}; only {self._content}, and nothing was run"
        )


@contextmanager
def damage_explained(what: str) -> Iterator[None]:
    """DataError for whatever a damaged pickle raises in the body: anything at all."""
    try:
        yield
    except (DataError, ResourceError, MemoryError, OSError):
        raise
    except Exception as error:
        raise DataError(f"{what} is damaged or truncated ({error})") from error


def load_pickle(file: BinaryIO, name: str) -> object:
    """The one object pickled in `file`; scipy matrices come as SparseRows, zero-dimensional object arrays unwrapped.

    Raises RefusedPickle (a DataError) when the pickle names any other constructor, DataError when it is damaged.
    """
    content = "numpy arrays and scipy csr, csc and coo matrices are read from pickles"
    with damage_explained(f"{name}: its pickle"):
        found = CarefulUnpickler(file, name, _admitted(), content).load()
    if isinstance(found, np.ndarray) and found.dtype == object and found.ndim == 0:
        found = found.item()
    if not isinstance(found, StandIn):
        return found

    # A matrix of scipy: its attributes by their public names.
    state = getattr(found, "state", None)
    if not isinstance(state, dict):
        raise DataError(f"{name}: its scipy matrix is damaged (it has no content)")
    parts = {key.lstrip("_"): value for key, value in state.items() if isinstance(key, str)}
    if found.kind == "coo" and "coords" in parts:
        parts["row"], parts["col"] = parts["coords"]
    return sparse_from_parts(found.kind, parts, name)


def sparse_from_parts(kind: str, parts: dict, name: str) -> SparseRows:
    """SparseRows from the arrays of a scipy matrix of `kind` csr, csc or coo (keys as scipy's attributes).

    Raises DataError when one is missing or they contradict each other.
    """
    # The arrays that a matrix of this kind has.
    needed = ("shape", "data", "row", "col") if kind == "coo" else ("shape", "data", "indices", "indptr")
    if missing := [key for key in needed if key not in parts]:
        raise DataError(f"{name}: its sparse matrix lacks {missing[0]!r}")
    rows, columns = (int(size) for size in np.asarray(parts["shape"]).reshape(-1))
    first, second = (
        whole_numbers(np.asarray(parts[key]), f"{name}: {key}").astype(np.int64, copy=False) for key in needed[2:]
    )
    data = np.asarray(parts["data"])

    # Rows as they are; columns and triplets are compressed by rows.
    if kind == "csr":
        return SparseRows((rows, columns), second, first, data).check(name)
    if kind == "csc":
        transposed = SparseRows((columns, rows), second, first, data).check(f"{name} (by columns)")
        return SparseRows.from_triplets(first, transposed.row, data, (rows, columns))
    if (
        first.shape != second.shape
        or len(first) != len(data)
        or (len(first) and not 0 <= first.min() <= first.max() < rows)
    ):
        raise DataError(f"{name}: the rows, columns and values of its sparse matrix do not fit together")
    return SparseRows.from_triplets(first, second, data, (rows, columns)).check(name)
