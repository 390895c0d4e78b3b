"""Interface of column encoders: statistics of the training period, and numbers made of a column with them.

An encoder's state is what JSON can hold. It is stored with the dataset, so that other tables are encoded alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow

from leapmpi.errors import ConfigError
from leapmpi.registry import Member, Registry

State = dict[str, Any]


class Statistics(Protocol):
    """Statistics of the rows of the training period, which come by batches."""

    def take(self, column: pyarrow.Array) -> None:
        """Take some more rows of the column. Raises DataError for values that the encoder cannot take."""

    def state(self) -> State:
        """Return the encoder's state. Raises DataError where no row was of use."""


@dataclass(frozen=True)
class EncoderMember(Member):
    """One kind of encoder.

    statistics: made of the options and of what messages call the column. width: columns of the encoded rows, by state.
    encode: float32[n, width] of the state, a column of n rows and its name; a value that is missing, or that no row of
    the training period had, is encoded all the same. options: their names, types and defaults.
    """

    statistics: Callable[[Mapping[str, Any], str], Statistics]
    width: Callable[[State], int]
    encode: Callable[[State, pyarrow.Array, str], np.ndarray]
    options: Mapping[str, Any] = field(default_factory=dict)


ENCODERS = Registry("encoder", "data_prep.database.encoders", EncoderMember)


def settled(member: EncoderMember, given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the options of an encoder, its defaults where none are `given`. Raises ConfigError for unsuitable ones."""
    for key, value in given.items():
        if key not in member.options:
            raise ConfigError(f"{name}: option {key!r} is none of {', '.join(member.options) or 'none'}")
        kind = type(member.options[key])
        if type(value) is not kind or (kind is int and value < 1):
            raise ConfigError(
                f"{name}: {key} is {value!r}; expected {'a number from 1 on' if kind is int else 'a text'}"
            )
    return {**member.options, **given}


def with_missing(values: np.ndarray, missing: np.ndarray, state: State) -> np.ndarray:
    """Return `values` [n, k], 0 where they are `missing` (bool[n]), and a column for that if the state has one."""
    out = np.zeros((len(values), values.shape[1] + bool(state["missing"])), np.float32)
    out[:, : values.shape[1]] = np.where(missing[:, None], 0, values)
    if state["missing"]:
        out[:, -1] = missing
    return out
