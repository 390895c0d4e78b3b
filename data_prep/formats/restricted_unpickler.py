"""Pickles read without trust: numpy arrays, scipy sparse matrices and plain containers, nothing else.

A pickle is a program. This reader admits only the constructors in its tables, and only the opcodes and arguments with
which numpy, scipy and torch write arrays. Arrays are built here from their shape, type and bytes: numpy's own
constructors trust their arguments and reach memory beyond their buffers. scipy's matrix classes are replaced by
stand-ins that merely keep their arrays, so no scipy is needed and its old module paths go on working.
"""

from __future__ import annotations

import math
import pickle
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np

from data_prep.edges.raw_graph import SparseRows
from leapmpi.errors import DataError, ResourceError, counted

_TYPE = re.compile(r"[<>=|]?([biufc]\d{1,2}|[SU]\d{1,9}|O8?|\?)")
"""Types of numbers, texts and objects, as numpy's pickles name them."""

_MOST_DIMENSIONS = 64
"""Dimensions of an array of numpy."""

_PIECE = 1 << 20
"""Bytes read at a time: a file would make room for as many as a damaged length says."""

_OPCODES = (
    *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.POP, pickle.POP_MARK, pickle.DUP),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.INT, pickle.BININT, pickle.BININT1, pickle.BININT2),
    *(pickle.LONG, pickle.LONG1, pickle.LONG4, pickle.FLOAT, pickle.BINFLOAT),
    *(pickle.STRING, pickle.BINSTRING, pickle.SHORT_BINSTRING, pickle.UNICODE, pickle.BINUNICODE),
    *(pickle.SHORT_BINUNICODE, pickle.BINUNICODE8, pickle.BINBYTES, pickle.SHORT_BINBYTES, pickle.BINBYTES8),
    *(pickle.BYTEARRAY8, pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.EMPTY_LIST, pickle.LIST, pickle.APPEND, pickle.APPENDS),
    *(pickle.EMPTY_DICT, pickle.DICT, pickle.SETITEM, pickle.SETITEMS),
    *(pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.REDUCE, pickle.NEWOBJ, pickle.BUILD, pickle.BINPERSID),
    *(pickle.GET, pickle.BINGET, pickle.LONG_BINGET, pickle.PUT, pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE),
)
"""Opcodes that numpy, scipy and torch write: no sets, old-style instances, extensions, or outside buffers."""


class RefusedPickle(DataError):
    """A pickle that requests something other than arrays and matrices."""


class StandIn:
    """A substitute for an object of a class that is not imported: keeps the state that its pickle holds."""

    state: object = None

    def built(self, state: object) -> object:
        """Take `state`; return what stands for the object from now on."""
        self.state = state
        return self


_SPARSE = {kind: type(f"_{kind}", (StandIn,), {"kind": kind}) for kind in ("csr", "csc", "coo")}
"""Stand-ins for scipy's matrices and arrays."""


class _Argument:
    """A class that pickles pass on but do not call."""

    def __init__(self, name: str) -> None:
        self.name = name


_NDARRAY, _LIST, _DICT = _Argument("numpy.ndarray"), _Argument("list"), _Argument("dict")


class _Dtype(StandIn):
    """A plain dtype; its state gives the byte order."""

    def __init__(self, text: object, align: object = False, copy: object = True) -> None:
        if not isinstance(text, str) or not _TYPE.fullmatch(text):
            shown = text[:20] if isinstance(text, str) else type(text).__name__
            raise ValueError(f"arrays of type {shown} are not read")
        self.dtype = np.dtype(text)

    def built(self, state: object) -> _Dtype:
        """Take the byte order. Raises ValueError for dtypes with fields or inner shapes."""
        if not isinstance(state, tuple) or len(state) not in (8, 9) or any(each is not None for each in state[2:5]):
            raise ValueError("arrays with named fields are not read")
        if state[1] not in ("<", ">", "=", "|"):
            raise ValueError("a dtype without byte order")
        self.dtype = self.dtype.newbyteorder(state[1])
        return self


class _PickledArray(StandIn):
    """An array before its state is known; `places` are the numbers of the memo that hold it."""

    def __init__(self, encode: Callable[[object], bytes]) -> None:
        self.places: list[int] = []
        self._encode = encode

    def built(self, state: object) -> np.ndarray:
        """Build the array of `state`, (version, shape, dtype, by columns, content).

        Raises ValueError where it is none.
        """
        if not isinstance(state, tuple) or len(state) not in (4, 5):
            raise ValueError("an array without content")
        shape, dtype, by_columns, content = state[-4:]
        if isinstance(content, str):  # bytes of Python 2
            content = self._encode(content)
        return _array(content, dtype, shape, "F" if by_columns is True or by_columns == 1 else "C")


def _array(content: object, dtype: object, shape: object, order: str) -> np.ndarray:
    """Build the array of `shape` over `content`, bytes, or a list for objects.

    Raises ValueError where they do not fit.
    """
    if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple):
        raise ValueError("an array without type or shape")
    if len(shape) > _MOST_DIMENSIONS or any(type(length) is not int or not 0 <= length < 2**63 for length in shape):
        raise ValueError("an array whose shape is not a list of lengths")
    kind = dtype.dtype

    # Objects come as a list alone: bytes would be taken for their addresses.
    if kind.hasobject and isinstance(content, list):
        flat = np.fromiter(content, object, len(content))
    elif not kind.hasobject and isinstance(content, bytes | bytearray):
        flat = np.frombuffer(content, kind) if content else np.empty(0, kind)
    else:
        raise ValueError(f"an array of type {kind} made of {type(content).__name__}")
    if math.prod(shape) != len(flat):
        raise ValueError(f"an array of shape {shape} with {counted(len(flat), 'value')}")
    return flat.reshape(shape, order=order)


def _scalar(dtype: object, content: object = b"") -> np.generic:
    """Build a number or text of numpy. Raises ValueError where `content` is none of `dtype`."""
    if not isinstance(dtype, _Dtype) or dtype.dtype.hasobject or not isinstance(content, bytes):
        raise ValueError("a number without content")
    return _array(content, dtype, (1,), "C")[0]


def _from_buffer(buffer: object, dtype: object, shape: object, order: object, axes: object = None) -> np.ndarray:
    """Build the array that numpy pickles by protocol 5; see numpy's `_frombuffer`."""
    if order == "K" and isinstance(axes, tuple):
        return _array(buffer, dtype, shape, "C").transpose(axes)
    return _array(buffer, dtype, shape, "F" if order == "F" else "C")


def _default_dict(factory: object = None) -> defaultdict:
    """Build a defaultdict of lists, as networkx and Planetoid pickle them."""
    if factory not in (None, _LIST):
        raise ValueError("a defaultdict of something other than lists")
    return defaultdict(list if factory is _LIST else None)


def _no_bytes() -> bytes:
    """Return the bytes of an empty array, as protocol 2 writes them."""
    return b""


def of_numpy() -> dict[tuple[str, str], object]:
    """List the names in pickles of numpy's arrays and numbers: module and name -> the replacement, or an _Argument."""
    encoded: dict[int, tuple[str, bytes]] = {}

    def encode(text: object, encoding: object = "latin1") -> bytes:
        # Old protocols write bytes as text, always Latin-1. One text makes one object, however often it is named.
        if not isinstance(text, str) or encoding != "latin1":
            raise ValueError("bytes in an unexpected encoding")
        return encoded.setdefault(id(text), (text, b"") if not text else (text, text.encode("latin1")))[1]

    def reconstruct(kind: object, shape: object, letter: object) -> _PickledArray:
        if kind is not _NDARRAY or shape != (0,):
            raise ValueError("an array of an unknown class")
        return _PickledArray(encode)

    table: dict[tuple[str, str], object] = {
        ("numpy", "ndarray"): _NDARRAY,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): encode,
        ("__builtin__", "bytes"): _no_bytes,
    }
    for core in ("numpy.core", "numpy._core"):  # before and since numpy 2
        table[f"{core}.multiarray", "_reconstruct"] = reconstruct
        table[f"{core}.multiarray", "scalar"] = _scalar
        table[f"{core}.numeric", "_frombuffer"] = _from_buffer
    return table


def of_plain() -> dict[tuple[str, str], object]:
    """List the names of plain containers in pickles, by their old and new modules."""
    table: dict[tuple[str, str], object] = {("collections", "defaultdict"): _default_dict}
    for module in ("__builtin__", "builtins"):
        table |= {(module, "list"): _LIST, (module, "dict"): _DICT}
    return table


def _of_scipy() -> dict[tuple[str, str], object]:
    """List the further names in pickles of scipy's matrices and plain containers, by their old and new names."""
    table = of_plain()
    for kind, stand_in in _SPARSE.items():
        for module in (f"scipy.sparse.{kind}", f"scipy.sparse._{kind}"):
            table[module, f"{kind}_matrix"] = stand_in
            table[module, f"{kind}_array"] = stand_in
    return table


def ordered_dict() -> OrderedDict:
    """Return an OrderedDict, empty as torch's pickles begin it."""
    return OrderedDict()


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
            raise EOFError
        return line


class _Memo(dict):
    """The memo of a pickle; arrays whose state comes later know where they are in it."""

    def __setitem__(self, number: int, value: object) -> None:
        if isinstance(value, _PickledArray):
            value.places.append(number)
        super().__setitem__(number, value)


class _Readers(dict):
    """The readers of opcodes by their byte."""

    def __missing__(self, opcode: int) -> Callable[[CarefulUnpickler], None]:
        raise pickle.UnpicklingError(f"no array is pickled with the opcode {bytes([opcode])!r}")


class CarefulUnpickler(pickle._Unpickler):
    """Python's own unpickler: the compiled one allocates a table as long as a damaged index says.

    Latin-1 is what keeps the bytes of arrays that Python 2 pickled as strings. It calls what is admitted, fills lists
    and dicts of plain keys, gives states to stand-ins, and does nothing else.
    """

    dispatch = _Readers((opcode[0], pickle._Unpickler.dispatch[opcode[0]]) for opcode in _OPCODES)

    def __init__(self, file: BinaryIO, name: str, admitted: Mapping[tuple[str, str], object], content: str) -> None:
        super().__init__(_WholeLines(file), encoding="latin1")
        self.memo = _Memo()
        self._name, self._admitted, self._content = name, admitted, content

    def find_class(self, module: str, name: str) -> object:
        """Return the object admitted under this name.

        Raises RefusedPickle for any other; `content` names the source.
        """
        if (module, name) in self._admitted:
            return self._admitted[module, name]
        raise self._refusal(f"names {module}.{name}")

    def _refusal(self, what: str) -> RefusedPickle:
        return RefusedPickle(f"{self._name}: its pickle {what}; only {self._content}, and nothing was run")

    def _reduce(self) -> None:
        # Arguments may be of any kind: what is called checks them.
        arguments, function = self.stack.pop(), self.stack.pop()
        if isinstance(function, _Argument):
            raise self._refusal(f"calls {function.name}")
        if not callable(function) or not isinstance(arguments, tuple):
            raise pickle.UnpicklingError(f"a {type(function).__name__} is called")
        self.append(function(*arguments))

    def _build(self) -> None:
        state, before = self.stack.pop(), self.stack[-1]
        if not isinstance(before, StandIn):
            raise pickle.UnpicklingError(f"a {type(before).__name__} is given a state")
        self.stack[-1] = after = before.built(state)
        if isinstance(before, _PickledArray):
            self.memo.update((number, after) for number in before.places if self.memo[number] is before)

    def _append(self) -> None:
        value = self.stack.pop()
        self._extend([value])

    def _appends(self) -> None:
        self._extend(self.pop_mark())

    def _extend(self, values: list) -> None:
        if type(self.stack[-1]) is not list:
            raise pickle.UnpicklingError(f"a {type(self.stack[-1]).__name__} is appended to")
        self.stack[-1].extend(values)

    def _dict(self) -> None:
        items = self.pop_mark()
        self.append({})
        self._fill(items)

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key, value])

    def _set_items(self) -> None:
        self._fill(self.pop_mark())

    def _fill(self, items: list) -> None:
        if not isinstance(self.stack[-1], dict) or len(items) % 2:
            raise pickle.UnpicklingError(f"a {type(self.stack[-1]).__name__} is given items")
        # A file may choose keys whose hashes take long, as those of nested tuples, or are all the same.
        for key in items[::2]:
            for each in key if type(key) is tuple else (key,):
                plain = each is None or isinstance(each, str | bytes | int | float | np.generic)
                if not plain or (isinstance(each, int) and abs(each) >= 2**60):
                    raise pickle.UnpicklingError(f"a {type(each).__name__} that is not a key of a dict")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def _byte_array(self) -> None:
        # Python's own reader allocates the stated size before it reads.
        size = int.from_bytes(self.read(8), "little")
        content = self.read(size)
        if len(content) != size:
            raise EOFError
        self.append(bytearray(content))

    dispatch.update(
        {
            pickle.REDUCE[0]: _reduce,
            pickle.NEWOBJ[0]: _reduce,
            pickle.BUILD[0]: _build,
            pickle.APPEND[0]: _append,
            pickle.APPENDS[0]: _appends,
            pickle.DICT[0]: _dict,
            pickle.SETITEM[0]: _set_item,
            pickle.SETITEMS[0]: _set_items,
            pickle.BYTEARRAY8[0]: _byte_array,
        }
    )


@contextmanager
def damage_explained(what: str) -> Iterator[None]:
    """Convert whatever a damaged pickle raises in the body, anything at all, to a DataError."""
    try:
        yield
    except (DataError, ResourceError, MemoryError, OSError):
        raise
    except Exception as error:
        reason = "it ends too early" if isinstance(error, EOFError) else str(error) or type(error).__name__
        raise DataError(f"{what} is damaged or truncated ({reason})") from error


def load_pickle(file: BinaryIO, name: str) -> object:
    """Load the one object pickled in `file`; scipy matrices become SparseRows, zero-dimensional object arrays
    unwrapped.

    Raises RefusedPickle (a DataError) when the pickle names any other constructor, DataError when it is damaged.
    """
    content = "numpy arrays and scipy csr, csc and coo matrices are read from pickles"
    with damage_explained(f"{name}: its pickle"):
        found = CarefulUnpickler(file, name, of_numpy() | _of_scipy(), content).load()
        if isinstance(found, np.ndarray) and found.dtype == object and found.ndim == 0:
            found = found.item()
        return _matrix(found, name) if isinstance(found, StandIn) else found


def _matrix(found: StandIn, name: str) -> SparseRows:
    """Convert `found` to the matrix of scipy that it stands for. Raises DataError where it is none."""
    if type(found) not in _SPARSE.values():
        raise DataError(f"{name}: its pickle holds no array and no matrix")
    if not isinstance(found.state, dict):
        raise DataError(f"{name}: its scipy matrix is damaged (it has no content)")
    # Its attributes by their public names.
    parts = {key.lstrip("_"): value for key, value in found.state.items() if isinstance(key, str)}
    if found.kind == "coo" and "coords" in parts:
        parts["row"], parts["col"] = parts["coords"]
    return SparseRows.from_parts(found.kind, parts, name)
