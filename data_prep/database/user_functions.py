"""Functions of users that make vectors of texts.

A schema or a dataset that names one may come from elsewhere, so one runs only if the command names it too: --code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from leapmpi.config.user_code import describe_error, load_named
from leapmpi.errors import ConfigError, DataError, Interrupted, counted

_AT_ONCE = 4096
"""Texts that a function gets in one call, at most."""


def check_code(named: Iterable[tuple[str, Any]], allowed: Collection[str]) -> None:
    """Raise ConfigError unless all functions of `named`, pairs of a column's place and a function, are `allowed`."""
    for place, function in named:
        if function not in allowed:
            raise ConfigError(f"{place} is encoded by code, {function}; if you trust it, add --code {function}")


def vectors_of(function: str, texts: list[str], name: str, width: int | None = None) -> np.ndarray:
    """Return float32[n, width] that `function` makes of `texts`, a list of str at a time; None: as wide as they are.

    Raises ConfigError where it cannot be loaded, DataError where it fails or returns anything else.
    """
    call = load_named(function, f"{name}: function")
    found = []
    for first in range(0, len(texts), _AT_ONCE):
        some = texts[first : first + _AT_ONCE]
        try:
            rows = np.asarray(call(some))
        # A signal is no fault of the function.
        except Interrupted:
            raise
        except Exception as error:
            raise DataError(f"{name}: {function} failed: {describe_error(error, function)}") from error
        wanted = f"{counted(len(some), 'row')} of {'equally many' if width is None else width} numbers"
        if rows.ndim != 2 or len(rows) != len(some) or not rows.shape[1] or rows.shape[1] != (width or rows.shape[1]):
            raise DataError(f"{name}: {function} returned an array of shape {rows.shape}; expected {wanted}")
        if rows.dtype.kind not in "fiub" or not np.isfinite(rows).all():
            raise DataError(f"{name}: {function} returned {rows.dtype} that are not all finite numbers")
        width = rows.shape[1]
        found.append(rows.astype(np.float32))
    return np.concatenate(found) if found else np.zeros((0, width or 0), np.float32)
