"""Edge data brought into the order of the sorted adjacency, in bounded memory.

Records go to files by bucket of destinations while edges stream by. Once the adjacency is known, each bucket is placed
by itself, in the order in which its records were read, and written in order.

An edge may have been read several times. Its own direction counts, and the reverse one only where there is no other: a
source that lists both directions keeps the values of each. Of the rest, weights are summed, the earliest time counts,
and the first features and label.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from data_prep.edges.edge_sort import Adjacency, EdgeCounts
from data_prep.progress import SILENT, Progress
from data_prep.workspace import Workspace
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.hdf5.row_blocks import row_groups
from leapmpi.errors import DataError, counted
from leapmpi.system.jit import compiled

_MOST_BUCKETS = 256
_READ_BYTES = 16 * 2**20
_NOTHING, _REVERSE, _OWN = 0, 1, 2


@dataclass(frozen=True)
class Placed:
    """Edge data of an adjacency, mapped, and the counts `merged` and `differing` of EdgeCounts."""

    data: EdgeData
    merged: int
    differing: int


def merge_notes(data: EdgeData, counts: EdgeCounts) -> list[str]:
    """Describe the handling of edges that were read several times, from their data and counts."""
    if not counts.merged:
        return []
    rules = {"weight": "weights summed", "time": "the earliest time kept", "features": "the first features kept"}
    rules["labels"] = "the first label kept"
    # The relation of an edge is never merged.
    names = [name.removeprefix("edge_") for name in data.arrays()]
    kept = [rules[name] for name in names if name in rules]
    differ = f" ({counts.differing:,} had others)" if counts.differing else ""
    return [f"duplicate edges merged ({counts.merged:,}): {', '.join(kept)}{differ}"]


@compiled
def _slots(rows, columns, backwards, first, indptr, indices, state, slot, fresh):
    """Find the place of each record among the edges of the rows from `first` on; mark the first record of each edge.

    indptr cuts `indices`, the in-neighbours of these rows; state [edges] is kept between calls. A record of other rows,
    or one that does not count, gets -1. Returns how many met an edge that had one, in the edge's own direction.
    """
    repeated = 0
    for i in range(len(rows)):
        slot[i] = -1
        row = rows[i] - first
        if row < 0 or row >= len(indptr) - 1:
            continue
        low, high = indptr[row] - indptr[0], indptr[row + 1] - indptr[0]
        # Binary search: columns ascend in a row, and every record has an edge.
        while low < high:
            middle = (low + high) // 2
            if np.int64(indices[middle]) < columns[i]:
                low = middle + 1
            else:
                high = middle
        kind = _REVERSE if backwards[i] else _OWN
        # An edge's own record wins over that of its reverse.
        if kind < state[low]:
            continue
        slot[i], fresh[i] = low, kind > state[low]
        repeated += kind == state[low] and kind == _OWN
        state[low] = kind
    return repeated


@compiled
def _add_weights(slot, fresh, weight, total):
    for i in range(len(slot)):
        if slot[i] >= 0:
            total[slot[i]] = weight[i] if fresh[i] else total[slot[i]] + weight[i]


@compiled
def _take_earliest(slot, fresh, time, earliest):
    for i in range(len(slot)):
        if slot[i] >= 0 and (fresh[i] or time[i] < earliest[slot[i]]):
            earliest[slot[i]] = time[i]


class EdgePlacer:
    """Takes edges with their records, and gives what the edges of an adjacency carry.

    dtype: that of the records; name: what messages call the edges. Each edge counts both ways unless `directed`. rows:
    first and end of the rows of the adjacency. reverse_from: sources from this number on are those of reverse edges
    that the caller adds; None without.
    """

    def __init__(
        self,
        rows: tuple[int, int],
        dtype: np.dtype,
        *,
        directed: bool,
        name: str,
        workspace: Workspace,
        reverse_from: int | None = None,
    ) -> None:
        self._directed, self._name, self._workspace = directed, name, workspace
        self._dtype = np.dtype([("row", "<i8"), ("column", "<i8"), ("backwards", "?"), ("carried", dtype)])
        self._low, self._rows, self._read = rows[0], rows[1] - rows[0], 0
        self._reverse_from = np.iinfo(np.int64).max if reverse_from is None else reverse_from
        self._bits = max(0, (self._rows - 1).bit_length() - _MOST_BUCKETS.bit_length() + 1)
        self._folder = workspace.path("records")
        self._folder.mkdir()

    def add(self, edges: np.ndarray, carried: np.ndarray) -> None:
        """Take `edges` [2, k], valid sources and destinations, and the records [k]. Raises DataError for bad values."""
        if len(carried) != edges.shape[1]:
            raise DataError(
                f"{self._name}: {counted(edges.shape[1], 'edge')}, but {counted(len(carried), 'record')} of edge data"
            )
        self._check(carried)
        self._read += len(carried)
        kept = edges[0] != edges[1]
        edges, carried = edges[:, kept], carried[kept]
        self._spill(edges[1], edges[0], False, carried)
        if not self._directed:
            self._spill(edges[0], edges[1], True, carried)

    def _check(self, carried: np.ndarray) -> None:
        for field in carried.dtype.names or ():
            values = carried[field]
            if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
                row = int(np.argmin(finite.reshape(len(values), -1).all(axis=1)))
                raise DataError(
                    f"{self._name}: {field} of edge {self._read + row} (counted from 0) is {values[row]}; what edges "
                    "carry must be finite"
                )

    def _spill(self, row: np.ndarray, column: np.ndarray, backwards: bool, carried: np.ndarray) -> None:
        """Append records to the files of their buckets, in their order."""
        row = row.astype(np.int64) - self._low
        inside = (row >= 0) & (row < self._rows)
        if not inside.all():
            row, column, carried = row[inside], column[inside], carried[inside]
        records = np.empty(len(row), self._dtype)
        records["row"], records["column"] = row, column
        records["backwards"] = backwards | (column >= self._reverse_from)
        records["carried"] = carried
        bucket = records["row"] >> self._bits
        # One write for each bucket, rather than one for each record.
        order = np.argsort(bucket, kind="stable")
        bounds = np.searchsorted(bucket[order], np.arange(((self._rows - 1) >> self._bits) + 2))
        records = records[order]
        self._workspace.take(records.nbytes, "edge data")
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            with (self._folder / str(number)).open("ab") as file:
                file.write(records[bounds[number] : bounds[number + 1]].tobytes())

    def finish(self, adjacency: Adjacency, progress: Progress = SILENT) -> Placed:
        """Return the edge data of `adjacency`, which must be that of the edges taken."""
        names = self._dtype["carried"].names or ()
        paths = {field: self._workspace.path(f"edge-{field}") for field in names}
        files = {field: path.open("wb") for field, path in paths.items()}
        merged = differing = 0
        progress.start(adjacency.vertices, "vertices")
        try:
            for bucket, start, stop in self._groups(adjacency):
                found, counts = self._placed(bucket, start, stop, adjacency)
                merged, differing = merged + counts[0], differing + counts[1]
                self._workspace.take(sum(found[field].nbytes for field in files), "edge data")
                for field, file in files.items():
                    file.write(np.ascontiguousarray(found[field]).data)
                progress.reach(stop)
        finally:
            for file in files.values():
                file.close()

        # Mapped, as the adjacency is.
        edges, arrays = int(adjacency.indptr[-1]), {}
        for field, path in paths.items():
            kind = self._dtype["carried"][field]
            arrays[field] = self._workspace.map(path, kind.base, (edges, *kind.shape))
        return Placed(EdgeData(**arrays), merged, differing)

    def _groups(self, adjacency: Adjacency) -> Iterator[tuple[int, int, int]]:
        """Yield bucket, first and end of rows that fit in memory with their edge data."""
        limit = self._workspace.capacity(0.25)
        for bucket in range(((self._rows - 1) >> self._bits) + 1):
            low = bucket << self._bits
            high = min(self._rows, low + (1 << self._bits))
            indptr = np.asarray(adjacency.indptr[low : high + 1])
            for start, stop in row_groups(indptr - indptr[0], 16, 16 + 2 * self._dtype.itemsize, limit):
                yield bucket, low + start, low + stop

    def _placed(
        self, bucket: int, start: int, stop: int, adjacency: Adjacency
    ) -> tuple[dict[str, np.ndarray], tuple[int, int]]:
        """Return by field the edge data of the rows start ... stop - 1, and the counts of `Placed`."""
        indptr = np.asarray(adjacency.indptr[start : stop + 1])
        indices = np.asarray(adjacency.indices[indptr[0] : indptr[-1]])
        # What is known of each edge: duplicates are merged by the rule of their field.
        state = np.full(len(indices), _NOTHING, np.int8)
        found: dict[str, np.ndarray] = {}
        for field in self._dtype["carried"].names or ():
            kind = self._dtype["carried"][field]
            found[field] = np.zeros((len(indices), *kind.shape), np.float64 if field == "weight" else kind.base)

        # Block by block, in the order in which they were read.
        repeated = differing = 0
        for records in self._records(bucket):
            slot, fresh = np.empty(len(records), np.int64), np.zeros(len(records), bool)
            ends = (np.ascontiguousarray(records[name]) for name in ("row", "column", "backwards"))
            repeated += int(_slots(*ends, start, indptr, indices, state, slot, fresh))
            for field, array in found.items():
                values = np.ascontiguousarray(records["carried"][field])
                if field == "weight":
                    _add_weights(slot, fresh, values, array)
                elif field == "time":
                    _take_earliest(slot, fresh, values, array)
                else:
                    first, again = fresh & (slot >= 0), ~fresh & (slot >= 0) & ~records["backwards"]
                    array[slot[first]] = values[first]
                    differ = array[slot[again]] != values[again]
                    differing += int((differ.any(axis=1) if differ.ndim == 2 else differ).sum())
        # Weights are summed in float64 and rounded once.
        if "weight" in found:
            with np.errstate(over="ignore"):
                found["weight"] = found["weight"].astype(np.float32)
        return found, (repeated, differing)

    def _records(self, bucket: int) -> Iterator[np.ndarray]:
        path = self._folder / str(bucket)
        if path.exists():
            with path.open("rb") as file:
                while len(block := np.fromfile(file, self._dtype, max(1, _READ_BYTES // self._dtype.itemsize))):
                    yield block
