"""Named columns of text or numbers: all rows of a table, or a batch of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


def first_of(names: Iterable[str], known: Sequence[str]) -> str | None:
    """The one of `names` that, in lower case, comes first in `known`."""
    lower = {name.lower(): name for name in reversed(list(names))}
    return next((lower[name] for name in known if name in lower), None)


@dataclass(frozen=True)
class TableColumns:
    """Rows of a table by columns: each a list of texts, or an array of numbers [rows] or [rows, k].

    lines: the line of each row in a text file (counted from 1), or None. first_row: how many rows of the table come
    before these. unread: names of columns of other types.
    """

    path: Path
    columns: dict[str, list[str] | np.ndarray]
    rows: int
    lines: np.ndarray | None = None
    first_row: int = 0
    unread: tuple[str, ...] = ()

    def place(self, row: int) -> str:
        """How messages call the row number `row` of these."""
        counted = f"row {self.first_row + row} (counted from 0)"
        return f"{self.path}, {counted if self.lines is None else f'line {self.lines[row]}'}"

    def first_of(self, known: Sequence[str]) -> str | None:
        """The column whose name, in lower case, comes first in `known`."""
        return first_of(self.columns, known)
