"""Which rows of a matrix are read, and their numbers among these: what is computed of a row need not be of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leapmpi.system.jit import compiled


@compiled
def _mark(numbers, marks):
    for e in range(len(numbers)):
        marks[numbers[e]] = True


@compiled
def _number_marked(marks, rows, place):
    """The marked rows into `rows`, and the number of each among them into `place`; returns how many there are."""
    count = 0
    for row in range(len(marks)):
        if marks[row]:
            rows[count] = row
            place[row] = count
            count += 1
    return count


@compiled
def _look_up(numbers, place, out):
    for e in range(len(numbers)):
        out[e] = place[numbers[e]]


@dataclass(frozen=True)
class RowsRead:
    """`rows` int64[k], ascending; `place` int32[sources]: the number of each row among them, arbitrary for others."""

    rows: Tensor
    place: np.ndarray

    def numbers(self, of_rows: Tensor) -> Tensor:
        """The places in `rows` of those numbered `of_rows` (int32 or int64[n]): of its dtype."""
        found = torch.empty_like(of_rows)
        _look_up(of_rows.contiguous().numpy(), self.place, found.numpy())
        return found


def rows_read(numbers: Sequence[Tensor], sources: int) -> RowsRead:
    """Those of `sources` rows that are in any of `numbers` (int32 or int64[n] each, on the host)."""
    marks = np.zeros(sources, np.bool_)
    for each in numbers:
        _mark(each.contiguous().numpy(), marks)
    rows, place = np.empty(sources, np.int64), np.empty(sources, np.int32)
    count = _number_marked(marks, rows, place)
    return RowsRead(torch.from_numpy(rows[:count]), place)
