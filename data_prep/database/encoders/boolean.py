"""Encoder `boolean`: 1 for true, -1 for false, 0 where it is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow
from pyarrow import compute

from data_prep.database.column_values import texts_in
from data_prep.database.encoder import EncoderMember, State
from leapmpi.errors import DataError

_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")


class _Nothing:
    """No statistics are needed."""

    def __init__(self, options: Mapping[str, Any], name: str) -> None:
        self._name = name

    def take(self, column: pyarrow.Array) -> None:
        _encode({}, column, self._name)

    def state(self) -> State:
        return {}


def _encode(state: State, column: pyarrow.Array, name: str) -> np.ndarray:
    words = compute.utf8_lower(texts_in(column))
    true, false = (compute.is_in(words, pyarrow.array(each, words.type)) for each in (_TRUE, _FALSE))
    true, false = (each.to_numpy(zero_copy_only=False) for each in (true, false))
    other = ~(true | false) & words.is_valid().to_numpy(zero_copy_only=False)
    if other.any():
        raise DataError(f"{name} holds {str(column[int(np.argmax(other))])[:40]!r}, which is neither true nor false")
    return (true.astype(np.float32) - false)[:, None]


MEMBER = EncoderMember(_Nothing, lambda state: 1, _encode)
