"""Encoder `vector`: lists of numbers of one length as they are, such as vectors of texts or pictures; none is zeros.

The lists are a column of the table, or rows of an .npy file that the option `file` names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow

from data_prep.database.column_values import is_list, missing_in
from data_prep.database.encoder import EncoderMember, State, with_missing
from leapmpi.errors import DataError, counted


class _Width:
    """The length of the lists."""

    def __init__(self, options: Mapping[str, Any], name: str) -> None:
        self._name, self._width, self._missing = name, 0, False

    def take(self, column: pyarrow.Array) -> None:
        if not is_list(column.type):
            raise DataError(f"{self._name} is {column.type}; vector takes lists of numbers, as Parquet holds them")
        known = column.drop_null()
        self._missing |= len(known) < len(column)
        if len(known) and not self._width:
            self._width = len(known[0])

    def state(self) -> State:
        if not self._width:
            raise DataError(f"{self._name} has no vector in the training period")
        return {"width": self._width, "missing": self._missing}


def _encode(state: State, column: pyarrow.Array, name: str) -> np.ndarray:
    missing, width = missing_in(column), state["width"]
    flat = column.drop_null().flatten()
    known = len(column) - int(missing.sum())
    lengths = {len(each) for each in column.drop_null()} if len(flat) == known * width else {-1}
    if lengths - {width} or flat.null_count:
        raise DataError(f"{name} has a vector that has not {counted(width, 'number')}")
    out = np.zeros((len(column), width), np.float32)
    with np.errstate(over="ignore"):  # what is infinite is named by its row
        out[~missing] = flat.to_numpy(zero_copy_only=False).reshape(known, width)
    return with_missing(np.where(np.isnan(out), 0, out), missing, state)


MEMBER = EncoderMember(_Width, lambda state: state["width"] + state["missing"], _encode, {"file": ""})
