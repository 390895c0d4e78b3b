"""Encoder `hashed`: each category adds 1 or -1 to one of a few columns, by its hash; for many categories.

Lists of categories, or texts that `separator` divides, add up. (Weinberger et al., "Feature Hashing", ICML 2009.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow

from data_prep.database.column_values import missing_in, texts_in, words_in
from data_prep.database.encoder import EncoderMember, State, with_missing
from data_prep.database.row_keys import hashed_texts


class _Missing:
    """Whether values are missing."""

    def __init__(self, options: Mapping[str, Any], name: str) -> None:
        self._options, self._found = options, False

    def take(self, column: pyarrow.Array) -> None:
        self._found |= column.null_count > 0

    def state(self) -> State:
        return {**self._options, "missing": self._found}


def _encode(state: State, column: pyarrow.Array, name: str) -> np.ndarray:
    width = state["columns"]
    rows, words = words_in(texts_in(column, state["separator"] or None))
    hashes = hashed_texts(words)
    places = rows * width + (hashes[:, 0] % np.uint64(width)).astype(np.int64)
    signs = np.where(hashes[:, 1] >> np.uint64(63), 1.0, -1.0)
    sums = np.bincount(places, signs, len(column) * width).reshape(len(column), width)
    return with_missing(sums, missing_in(column), state)


MEMBER = EncoderMember(_Missing, lambda s: s["columns"] + s["missing"], _encode, {"columns": 32, "separator": ""})
