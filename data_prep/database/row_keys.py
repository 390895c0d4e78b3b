"""Keys of rows: values of any type as pairs of 64-bit words, and a hash table from the keys of a table to its rows.

A whole number is its own key. A text, and a key of several columns, is the 128 bits of a hash: among a billion keys two
are equal by chance once in 10**20 imports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import pyarrow
from pyarrow import compute, types

from data_prep.edges.typed_graph import RowKeys
from data_prep.workspace import Workspace
from leapmpi.errors import DataError
from leapmpi.system.intrinsics import prefetch
from leapmpi.system.jit import compiled

_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_HALF, _THIRD = np.uint64(32), np.uint64(29)
_BYTE = np.uint64(8)
_AHEAD = 16
"""Keys between the prefetch of a slot and its use."""

WHOLE, TEXT, TIME = "whole numbers", "texts", "times"


def kind_of(arrow_type: pyarrow.DataType, name: str) -> str:
    """Return what a column of keys holds: WHOLE, TEXT or TIME. Raises DataError for another type."""
    kind = arrow_type.value_type if types.is_dictionary(arrow_type) else arrow_type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind):
        return WHOLE
    if types.is_decimal(kind):
        return WHOLE if kind.scale == 0 else TEXT
    if types.is_date(kind) or types.is_timestamp(kind):
        return TIME
    if _is_bytes(kind):
        return TEXT
    raise DataError(f"{name} is {arrow_type}, which cannot be a key; keys are whole numbers, texts, bytes or times")


def _is_bytes(kind: pyarrow.DataType) -> bool:
    tests = types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_fixed_size_binary
    return any(test(kind) for test in tests)


def keys_of(columns: Sequence[pyarrow.Array], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys uint64[n, 2] of rows with their values in `columns`, and where none is missing: bool[n].

    Raises DataError for numbers that are not whole.
    """
    words, there = _words(columns[0], name)
    for column in columns[1:]:
        more, also = _words(column, name)
        words, there = _combined(words, more), there & also
    return words, there


def _words(column: pyarrow.Array, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the words uint64[n, 2] of the values of one column, and where there is one."""
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = kind_of(column.type, name)
    if kind == TEXT:
        column = column if _is_bytes(column.type) else column.cast(pyarrow.string())
        return hashed_texts(column), _there(column)
    if types.is_floating(column.type):
        # Whole numbers with missing ones, as pandas writes them.
        column = compute.if_else(compute.is_nan(column), pyarrow.scalar(None, column.type), column)
    # One unit for all times, so that equal times of two tables make equal keys.
    if kind == TIME and not types.is_date32(column.type):
        column = column.cast(pyarrow.timestamp("us"), safe=False)
    if types.is_date32(column.type):
        column = column.cast(pyarrow.timestamp("us"))
    there = _there(column)
    if not there.any():
        return np.zeros((len(column), 2), np.uint64), there
    try:
        if types.is_uint64(column.type):
            values = compute.fill_null(column, 0).to_numpy(zero_copy_only=False)
        else:
            values = compute.fill_null(column.cast(pyarrow.int64()), 0).to_numpy(zero_copy_only=False)
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{name} holds numbers that are not whole ({str(error).splitlines()[0]})") from None
    # Numbers fit one word, and the other tells negative ones from those above 2**63. Texts need two against collisions.
    words = np.empty((len(values), 2), np.uint64)
    words[:, 0], words[:, 1] = values.view(np.uint64), values < 0
    return words, there


def _there(column: pyarrow.Array) -> np.ndarray:
    """Return where `column` has a value: bool[n]."""
    if column.null_count == 0:
        return np.ones(len(column), bool)
    return column.is_valid().to_numpy(zero_copy_only=False)


def hashed_texts(column: pyarrow.Array) -> np.ndarray:
    """Return two hashes of each text or bytes of `column`: uint64[n, 2]; those of missing ones are of no use."""
    wide = pyarrow.large_binary()
    column = column.cast(pyarrow.binary()) if types.is_fixed_size_binary(column.type) else column
    column = column.cast(wide) if column.type != wide else column
    _, offsets, data = column.buffers()
    held = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1] if len(column) else None
    out = np.empty((len(column), 2), np.uint64)
    if held is not None:
        _hash(held, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), out)
    return out


@compiled
def _mix(h):
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@compiled
def _hash(offsets, data, out):
    """Write two hashes of each run of bytes, of eight bytes at a time."""
    for i in range(len(out)):
        start, stop = offsets[i], offsets[i + 1]
        first, second = np.uint64(stop - start) ^ _FIRST, np.uint64(stop - start) ^ _SECOND
        while start < stop:
            end, word = min(start + 8, stop), np.uint64(0)
            for place in range(start, end):
                word = (word << _BYTE) | np.uint64(data[place])
            first, second = (first ^ word) * _FIRST, (second ^ word) * _SECOND
            first, second = first ^ (first >> _HALF), second ^ (second >> _THIRD)
            start = end
        out[i, 0], out[i, 1] = _mix(first), _mix(second)


@compiled
def _combined(words, more):
    """Return the words of keys of one column more: uint64[n, 2]."""
    out = np.empty_like(words)
    for i in range(len(words)):
        out[i, 0] = _mix(_mix(words[i, 0] ^ _FIRST) + more[i, 0] * _SECOND + (words[i, 1] ^ (more[i, 1] >> _HALF)))
        out[i, 1] = _mix(_mix(words[i, 0] ^ _SECOND) + _mix(more[i, 0]) + words[i, 1] + more[i, 1] * _FIRST)
    return out


@compiled
def _insert(keys, first, end, there, slots, duplicates):
    """Enter the rows from `first` to `end`; of equal keys the first stays. Returns the number of the others."""
    # Open addressing in a table of a power of two; slots ahead are fetched, since each is a cache miss.
    mask, repeated = np.uint64(len(slots) - 1), 0
    for row in range(first, end):
        if row + _AHEAD < end:
            ahead = _mix(keys[row + _AHEAD, 0] ^ keys[row + _AHEAD, 1])
            prefetch(slots, np.intp(ahead & mask))
        if not there[row - first]:
            continue
        place = _mix(keys[row, 0] ^ keys[row, 1]) & mask
        while True:
            other = np.int64(slots[place])
            if other < 0:
                slots[place] = row
                break
            if keys[other, 0] == keys[row, 0] and keys[other, 1] == keys[row, 1]:
                if repeated == 0:
                    duplicates[0] = row
                repeated += 1
                break
            place = (place + np.uint64(1)) & mask
    return repeated


@compiled
def _find(wanted, there, keys, slots, rows):
    """Write the row of each wanted key, or -1. Returns how many keys have none."""
    # As in `_insert`: the same walk ends at the key, or at an empty slot.
    mask, dangling = np.uint64(len(slots) - 1), 0
    for i in range(len(wanted)):
        if i + _AHEAD < len(wanted):
            ahead = _mix(wanted[i + _AHEAD, 0] ^ wanted[i + _AHEAD, 1])
            prefetch(slots, np.intp(ahead & mask))
        rows[i] = -1
        if not there[i]:
            continue
        place = _mix(wanted[i, 0] ^ wanted[i, 1]) & mask
        while True:
            other = np.int64(slots[place])
            if other < 0:
                dangling += 1
                break
            if keys[other, 0] == wanted[i, 0] and keys[other, 1] == wanted[i, 1]:
                rows[i] = other
                break
            place = (place + np.uint64(1)) & mask
    return dangling


class KeyTable:
    """Rows of a table by their primary keys, in files: 16 bytes a row, and 8 to 32 for slots; a byte in memory."""

    def __init__(self, rows: int, workspace: Workspace) -> None:
        self._keys = workspace.array("keys", (max(rows, 1), 2), np.uint64)
        size = 1 << max(4, (rows + rows // 2).bit_length())
        self._slots = workspace.array("slots", (size,), np.int32 if rows < 2**31 else np.int64)
        self._slots[:] = -1
        self._there = np.ones(rows, bool)
        self._filled = 0
        self.repeated, self.missing, self.first_repeated = 0, 0, -1
        """Rows whose key stands in an earlier row, rows without a key, and the first of the former."""

    @classmethod
    def of(cls, keys: np.ndarray, there: np.ndarray, workspace: Workspace) -> Self:
        """Return the table of the `keys` (uint64[rows, 2]) of all rows; `there`: bool[rows], which have one."""
        table = cls(len(keys), workspace)
        table.add(keys, there)
        return table

    def add(self, keys: np.ndarray, there: np.ndarray) -> None:
        """Enter the next rows with their `keys` (uint64[k, 2]), where `there` (bool[k]) says that they have one."""
        end, first = self._filled + len(keys), np.zeros(1, np.int64)
        self._keys[self._filled : end] = keys
        self._there[self._filled : end] = there
        repeated = _insert(self._keys, self._filled, end, there, self._slots, first)
        if repeated and not self.repeated:
            self.first_repeated = int(first[0])
        self.repeated += repeated
        self.missing += len(there) - int(there.sum())
        self._filled = end

    @property
    def all(self) -> RowKeys:
        """The keys of all rows."""
        return RowKeys(self._keys[: self._filled], self._there)

    def rows_of(self, keys: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, int]:
        """Return the row of each key, int64[k], -1 without; and how many keys that are there have none."""
        rows = np.empty(len(keys), np.int64)
        return rows, int(_find(keys, there, self._keys, self._slots, rows))
