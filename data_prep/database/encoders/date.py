"""Encoder `date`: when a time was, scaled by the training period, and its place in the year, the week and the day.

Cyclic parts are sine and cosine, in UTC. Those of the day are there if a training time is not midnight. Whole numbers
count as seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow

from data_prep.database.column_values import NEVER, times_in
from data_prep.database.encoder import EncoderMember, State, with_missing

_DAY, _WEEK, _YEAR = 86_400, 7 * 86_400, 31_556_952
_MOST = 100.0


class _Span:
    """Mean and deviation of times."""

    def __init__(self, options: Mapping[str, Any], name: str) -> None:
        self._name, self._count, self._sum, self._squares = name, 0, 0.0, 0.0
        self._origin: float | None = None
        self._missing = self._day = False

    def take(self, column: pyarrow.Array) -> None:
        times = times_in(column, self._name)
        known = times[times != NEVER]
        self._missing |= len(known) < len(times)
        if len(known):
            self._origin = float(known[0]) if self._origin is None else self._origin
            away = known - self._origin
            self._count += len(known)
            self._sum += float(away.sum())
            self._squares += float((away**2).sum())
            self._day |= bool((known % _DAY).any())

    def state(self) -> State:
        mean = self._sum / max(1, self._count)
        scale = max(self._squares / max(1, self._count) - mean**2, 0.0) ** 0.5
        origin = self._origin or 0.0
        return {"mean": origin + mean, "scale": scale or 1.0, "day": self._day, "missing": self._missing}


def _encode(state: State, column: pyarrow.Array, name: str) -> np.ndarray:
    times = times_in(column, name)
    missing = times == NEVER
    times = np.where(missing, 0, times)
    parts = [np.clip((times - state["mean"]) / state["scale"], -_MOST, _MOST)]
    for period in (_YEAR, _WEEK, *([_DAY] if state["day"] else [])):
        angle = (times % period) * (2 * np.pi / period)
        parts += [np.sin(angle), np.cos(angle)]
    return with_missing(np.stack(parts, axis=1), missing, state)


MEMBER = EncoderMember(_Span, lambda state: 5 + 2 * state["day"] + state["missing"], _encode)
