"""Encoder `text`: vectors that a function of yours makes of texts, named as FILE.py:NAME or PACKAGE.MODULE:NAME.

It gets a list of texts and returns an array of a row for each. Equal texts must become equal rows, whatever stands
beside them. A missing text is zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow

from data_prep.database.column_values import missing_in, texts_in
from data_prep.database.encoder import EncoderMember, State, with_missing
from data_prep.database.user_functions import vectors_of
from leapmpi.errors import ConfigError, DataError


class _Width:
    """The width of the vectors, from the first text."""

    def __init__(self, options: Mapping[str, Any], name: str) -> None:
        if ":" not in options["function"]:
            raise ConfigError(f'{name}: text needs a function, as in function = "words.py:vectors"')
        self._function, self._name, self._width, self._missing = options["function"], name, 0, False

    def take(self, column: pyarrow.Array) -> None:
        self._missing |= column.null_count > 0
        if not self._width and len(known := texts_in(column).drop_null()):
            self._width = vectors_of(self._function, known[:1].to_pylist(), self._name).shape[1]

    def state(self) -> State:
        if not self._width:
            raise DataError(f"{self._name} has no text in the training period")
        return {"function": self._function, "width": self._width, "missing": self._missing}


def _encode(state: State, column: pyarrow.Array, name: str) -> np.ndarray:
    missing = missing_in(column)
    out = np.zeros((len(column), state["width"]), np.float32)
    out[~missing] = vectors_of(state["function"], texts_in(column).drop_null().to_pylist(), name, state["width"])
    return with_missing(out, missing, state)


MEMBER = EncoderMember(_Width, lambda state: state["width"] + state["missing"], _encode, {"function": ""})
