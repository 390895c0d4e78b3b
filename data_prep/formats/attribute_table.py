"""Tables held in memory: what a format says about its vertices or edges one by one, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from data_prep.formats.columns import TableColumns

Values = list[str] | np.ndarray


class AttributeTable:
    """A Table of the columns `keys` and of one column for each name in `attributes`, a mapping for each row.

    Numbers and truth values become numbers, NaN where a row has none; lists of numbers of one length a matrix; texts,
    alone or mixed with numbers, texts, empty where a row has none. Columns of anything else are unread.
    """

    pieces = 1

    def __init__(self, path: Path, keys: Mapping[str, Values], attributes: Sequence[Mapping[object, object]]) -> None:
        self.path = path
        self._rows = len(attributes)
        self._columns: dict[str, Values] = dict(keys)
        names = dict.fromkeys(name for each in attributes for name in each if isinstance(name, str))
        found = {name: _column([each.get(name) for each in attributes]) for name in names if name not in keys}
        self._columns |= {name: column for name, column in found.items() if column is not None}
        self.names = list(self._columns)
        self.unread = tuple(name for name, column in found.items() if column is None)
        self.integers = frozenset(
            name
            for name, column in self._columns.items()
            if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind == "i"
        )

    def batches(self, only: Sequence[str], pieces: range | None = None) -> Iterator[TableColumns]:
        """Yield the columns `only` of all rows at once; nothing where there are none, and of no pieces."""
        if self._rows and (pieces is None or pieces):
            yield TableColumns(self.path, {name: self._columns[name] for name in only}, self._rows)


def _column(values: list[object]) -> Values | None:
    """Return one column of `values`, None where a row has none, or None for values of other kinds."""
    given = [value for value in values if value is not None]
    if all(isinstance(value, bool | int | float | np.number | np.bool_) for value in given):
        whole = len(given) == len(values) and not any(isinstance(value, float | np.floating) for value in given)
        try:
            return np.array([np.nan if value is None else value for value in values], np.int64 if whole else np.float64)
        except OverflowError:
            return None
    if all(isinstance(value, list | tuple | np.ndarray) for value in values):
        return _matrix(values)
    if all(isinstance(value, str | bool | int | float | np.number | np.bool_) for value in given):
        return ["" if value is None else str(value) for value in values]
    return None


def _matrix(rows: list) -> np.ndarray | None:
    """Return `rows` of numbers, all of one length, as a matrix, or None for others."""
    if len({len(row) if np.ndim(row) == 1 else -1 for row in rows}) != 1:
        return None
    found = np.array(rows)
    return found if found.ndim == 2 and found.dtype.kind in "biuf" else None
