"""Mean and deviation of numbers, by which `standard` and `log` scale."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow

from data_prep.database.column_values import numbers_in
from data_prep.database.encoder import EncoderMember, State, with_missing

_MOST = 100.0
"""Largest distance from the mean, in deviations: a stray value does not drown the others."""


class Moments:
    """Count, mean and deviation of numbers that come by batches, after `change`."""

    def __init__(self, change: Callable[[np.ndarray], np.ndarray], name: str) -> None:
        self._change, self._name = change, name
        self._count, self._mean, self._squares, self._missing = 0, 0.0, 0.0, False

    def take(self, column: pyarrow.Array) -> None:
        """Add the numbers of `column`; missing ones do not count. Raises DataError for other values."""
        values = self._change(numbers_in(column, self._name))
        known = values[~np.isnan(values)]
        self._missing |= len(known) < len(values)
        if not len(known):
            return
        # Chan, Golub and LeVeque: moments of two sets are added without loss of digits.
        with np.errstate(over="ignore"):
            mean = float(known.mean())
            away = mean - self._mean
            total = self._count + len(known)
            self._squares += float(((known - mean) ** 2).sum()) + away**2 * self._count * len(known) / total
        self._mean += away * len(known) / total
        self._count = total

    def state(self) -> State:
        """Return `mean` and `scale`, the deviation (1 where numbers are alike), and whether some were `missing`."""
        deviation = (self._squares / max(1, self._count)) ** 0.5
        usable = np.isfinite(deviation) and deviation > 1e-12 * abs(self._mean)
        return {"mean": self._mean, "scale": deviation if usable else 1.0, "missing": self._missing}


def scaled(change: Callable[[np.ndarray], np.ndarray]) -> EncoderMember:
    """Return the encoder that scales numbers to mean 0 and deviation 1 after `change`."""

    def encode(state: State, column: pyarrow.Array, name: str) -> np.ndarray:
        values = change(numbers_in(column, name))
        away = np.clip((values - state["mean"]) / state["scale"], -_MOST, _MOST)
        return with_missing(away[:, None], np.isnan(values), state)

    return EncoderMember(lambda _, name: Moments(change, name), lambda state: 1 + state["missing"], encode)
