"""Small values and rows of all ranks on every rank, waited for asleep, in messages of bounded size.

Values travel as JSON: what arrives is data, and nothing of it is ever run.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.comm import mpi_buffers
from leapmpi.comm.flow_control import Finish, wait_for

if TYPE_CHECKING:
    from mpi4py import MPI


def to_json(value: Any) -> bytes:
    """Convert `value` to JSON; numpy's numbers count as numbers."""
    return json.dumps(value, default=lambda number: number.item()).encode()


def all_gather_values(comm: MPI.Intracomm, value: Any, finish: Finish = wait_for) -> list[Any]:
    """Gather the `value` (None, numbers, text, and lists and dicts of them) of every rank of `comm`, by rank.

    Collective.
    """
    # Rows must be equally long: find the longest text first.
    text = to_json(value)
    lengths = np.empty((comm.size, 1), np.int64)
    all_gather_rows(comm, np.array([len(text)]), lengths, finish)

    padded = np.zeros(int(lengths.max()), np.uint8)
    padded[: len(text)] = np.frombuffer(text, np.uint8)
    rows = np.empty((comm.size, len(padded)), np.uint8)
    all_gather_rows(comm, padded, rows, finish)
    return [json.loads(bytes(row[: int(length)])) for row, length in zip(rows, lengths[:, 0], strict=True)]


def all_gather_rows(comm: MPI.Intracomm, row: np.ndarray, into: np.ndarray, finish: Finish = wait_for) -> None:
    """Fill `into` (ranks, *row.shape) with the equally long rows of all ranks. Collective.

    No call moves more than MESSAGE_LIMIT bytes in all: MPI-3 counts end at 2**31. `finish` brings a call to its end.
    """
    mine = mpi_buffers.as_bytes(row, "row")
    rows = mpi_buffers.as_bytes(into, "rows").reshape(comm.size, -1)
    for part in mpi_buffers.parts(len(mine), max(1, mpi_buffers.MESSAGE_LIMIT // comm.size)):
        arrived = np.empty((comm.size, part.stop - part.start), np.uint8)
        finish(partial(comm.Iallgather, mine[part], arrived))
        rows[:, part] = arrived
