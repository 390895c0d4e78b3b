"""Values of columns of pyarrow as numbers, times and texts."""

from __future__ import annotations

import numpy as np
import pyarrow
from pyarrow import compute, types

from data_prep.edges.edge_records import narrowed
from leapmpi.errors import DataError

NEVER = np.iinfo(np.int64).max
"""Time of a row without one: no root sees it."""


def plain(column: pyarrow.Array) -> pyarrow.Array:
    """Return `column`, its values themselves where it is stored as a dictionary."""
    return column.cast(column.type.value_type) if types.is_dictionary(column.type) else column


def is_list(kind: pyarrow.DataType) -> bool:
    """Return whether a column of this type holds lists."""
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def is_text(kind: pyarrow.DataType) -> bool:
    """Return whether a column of this type holds texts."""
    return types.is_string(kind) or types.is_large_string(kind)


def numbers_in(column: pyarrow.Array, name: str) -> np.ndarray:
    """Return float64[n], NaN where a number is missing or not finite. Raises DataError for other values."""
    column = plain(column)
    if types.is_date(column.type) or types.is_timestamp(column.type):
        return np.where((found := times_in(column, name)) == NEVER, np.nan, found)
    try:
        if types.is_boolean(column.type):
            column = column.cast(pyarrow.int8())
        found = column.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        raise DataError(f"{name} holds no numbers ({str(error).splitlines()[0]})") from None
    return np.where(np.isfinite(found), found, np.nan)


def times_in(column: pyarrow.Array, name: str) -> np.ndarray:
    """Return times int64[n]: seconds since 1970 in UTC, rounded down; whole numbers as they are; NEVER without one.

    Raises DataError for other values.
    """
    column = plain(column)
    kind = column.type
    try:
        if is_text(kind):
            column = column.cast(pyarrow.timestamp("us"))
        # pandas writes whole numbers with missing ones as floats.
        if types.is_floating(kind):
            column = compute.if_else(compute.is_nan(column), pyarrow.scalar(None, kind), column)
        if types.is_date(column.type):
            column = column.cast(pyarrow.timestamp("ms"))
        if types.is_timestamp(column.type):
            # NEVER is not a time: dividing it would make one.
            unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.type.unit]
            found = compute.fill_null(column.cast(pyarrow.int64()), NEVER).to_numpy(zero_copy_only=False)
            return found if unit == 1 else np.where(found == NEVER, NEVER, found // unit)
        return compute.fill_null(column.cast(pyarrow.int64()), NEVER).to_numpy(zero_copy_only=False)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        raise DataError(
            f"{name} holds no times ({str(error).splitlines()[0]}); expected dates, or whole numbers"
        ) from None


def texts_in(column: pyarrow.Array, separator: str | None = None) -> pyarrow.Array:
    """Return `column` as texts, or lists of texts: as it stands, or divided by `separator`."""
    column = plain(column)
    if separator is not None and is_text(column.type):
        column = compute.split_pattern(column, separator)
    if is_list(column.type):
        return column.cast(pyarrow.large_list(pyarrow.large_string()))
    if types.is_floating(column.type):
        # 5.0 where a number is missing is 5 elsewhere.
        column = compute.if_else(compute.is_nan(column), pyarrow.scalar(None, column.type), column)
        found = column.drop_null().to_numpy(zero_copy_only=False)
        if narrowed(found, np.dtype(np.int64))[1] < 0:
            column = column.cast(pyarrow.int64())
    return column.cast(pyarrow.large_string())


def words_in(column: pyarrow.Array) -> tuple[np.ndarray, pyarrow.Array]:
    """Return the row int64[k] of each text of texts or lists of texts, and the texts; missing ones are left out."""
    if is_list(column.type):
        lengths = compute.fill_null(compute.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        rows, words = np.repeat(np.arange(len(column)), lengths), column.flatten()
    else:
        rows, words = np.arange(len(column)), column
    if words.null_count:
        rows, words = rows[words.is_valid().to_numpy(zero_copy_only=False)], words.drop_null()
    return rows, words


def missing_in(column: pyarrow.Array) -> np.ndarray:
    """Return where `column` has no value: bool[n]."""
    return plain(column).is_null(nan_is_null=types.is_floating(column.type)).to_numpy(zero_copy_only=False)
