"""Encoder `one-hot`: a column for each frequent category, one for all others, one for a missing value.

Lists of categories, or texts that `separator` divides, have a 1 for each. A category that no row of the training period
had is one of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow
from pyarrow import compute

from data_prep.database.column_values import missing_in, texts_in, words_in
from data_prep.database.encoder import EncoderMember, State
from leapmpi.errors import DataError

_MOST_COUNTED = 1 << 20


class _Counts:
    """Counts of categories."""

    def __init__(self, options: Mapping[str, Any], name: str) -> None:
        self._options, self._name = options, name
        self._counts: Counter[str] = Counter()
        self._missing = False

    def take(self, column: pyarrow.Array) -> None:
        _, words = words_in(texts_in(column, self._options["separator"] or None))
        for each in compute.value_counts(words):
            self._counts[each["values"].as_py()] += each["counts"].as_py()
        self._missing |= bool(missing_in(column).any())
        if len(self._counts) > _MOST_COUNTED:
            raise DataError(f"{self._name} has more than {_MOST_COUNTED:,} categories; encode it as hashed or learned")

    def state(self) -> State:
        ordered = sorted(self._counts, key=lambda word: (-self._counts[word], word))
        kept = sorted(ordered[: self._options["most"]])
        return {"categories": kept, "separator": self._options["separator"], "missing": self._missing}


def _width(state: State) -> int:
    return len(state["categories"]) + 1 + state["missing"]


def _encode(state: State, column: pyarrow.Array, name: str) -> np.ndarray:
    out = np.zeros((len(column), _width(state)), np.float32)
    categories = pyarrow.array(state["categories"], pyarrow.large_string())
    rows, words = words_in(texts_in(column, state["separator"] or None))
    codes = compute.fill_null(compute.index_in(words, categories), len(categories)).to_numpy(zero_copy_only=False)
    out[rows, codes] = 1
    missing = missing_in(column)
    out[missing, -1 if state["missing"] else len(categories)] = 1
    return out


MEMBER = EncoderMember(_Counts, _width, _encode, {"most": 64, "separator": ""})
