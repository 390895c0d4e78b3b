"""Encoder `rank-gauss`: the normal quantile of a number's rank in the training period; for any distribution."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow

from data_prep.database.column_values import numbers_in
from data_prep.database.encoder import EncoderMember, State, with_missing

_MOST_HELD = 1 << 20
_POINTS = 257


class _Quantiles:
    """Quantiles of numbers that come by batches: of all up to 2**20, then of every second, every fourth, and so on."""

    def __init__(self, options: Mapping[str, Any], name: str) -> None:
        self._name = name
        self._held: list[np.ndarray] = []
        self._count, self._step, self._seen, self._missing = 0, 1, 0, False

    def take(self, column: pyarrow.Array) -> None:
        values = numbers_in(column, self._name)
        known = values[~np.isnan(values)]
        self._missing |= len(known) < len(values)
        taken = known[-self._seen % self._step :: self._step]
        self._seen += len(known)
        self._held.append(taken)
        self._count += len(taken)
        while self._count > _MOST_HELD:
            self._held = [np.concatenate(self._held)[::2]]
            self._count, self._step = len(self._held[0]), self._step * 2

    def state(self) -> State:
        shares = (np.arange(_POINTS) + 0.5) / _POINTS
        normal = np.array([NormalDist().inv_cdf(each) for each in shares])
        held = np.concatenate([*self._held, np.empty(0)])
        if not len(held):
            return {"values": [0.0], "normal": [0.0], "missing": self._missing}
        # Of equal quantiles the middle one counts.
        values, first, counts = np.unique(np.quantile(held, shares), return_index=True, return_counts=True)
        middle = normal[first + (counts - 1) // 2] if len(values) > 1 else np.zeros(1)
        return {"values": values.tolist(), "normal": middle.tolist(), "missing": self._missing}


def _encode(state: State, column: pyarrow.Array, name: str) -> np.ndarray:
    values = numbers_in(column, name)
    return with_missing(np.interp(values, state["values"], state["normal"])[:, None], np.isnan(values), state)


MEMBER = EncoderMember(_Quantiles, lambda state: 1 + state["missing"], _encode)
