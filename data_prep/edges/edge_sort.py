"""Edges in any number and order sorted into an adjacency, in bounded memory.

An edge becomes one 64-bit key: the row within its bucket, the column, and whether it is a reverse edge. Keys are
scattered to buckets of consecutive rows, in files where memory does not hold them all (distribution sort). Then each
bucket is sorted by itself and written in order. A bucket that memory cannot hold is taken in several groups of rows.
Threads share all of that; what they write depends on the edges alone, whatever their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.edges.edge_keys import count_keys, count_rows, distinct, scatter_keys, sort_rows, take_rows
from data_prep.progress import SILENT, Progress
from data_prep.workspace import Workspace
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.hdf5.names import index_dtype
from leapmpi.errors import DataError
from leapmpi.system.worker_threads import in_order

_MOST_BUCKETS = 512
_EDGES_IN_MEMORY = 1 << 25
_BYTES_PER_EDGE = 32  # an edge as read, its two keys, and copies while these are scattered
_BYTES_PER_KEY = 20  # while a bucket is sorted
_READ_KEYS = 1 << 20


@dataclass(frozen=True)
class Adjacency:
    """In-neighbours by vertex, strictly ascending: indptr int64[n + 1], indices int32[m] (int64 from 2**31 on).

    data: what the edges carry.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: EdgeData = field(default_factory=EdgeData)

    @property
    def vertices(self) -> int:
        """The number of vertices."""
        return len(self.indptr) - 1


@dataclass(frozen=True)
class EdgeCounts:
    """Counts of edges: read = loops + duplicates + distinct; written = distinct + reverse_added.

    merged: records of edges that had one already, reverse edges left out; differing: those of them whose features or
    labels differ from the ones that count.
    """

    read: int
    loops: int
    duplicates: int
    reverse_added: int
    written: int
    merged: int = 0
    differing: int = 0


_GRAPH = ("the graph", "the graph")


def check_ids(
    edges: np.ndarray, vertices: int | Sequence[int], name: str, first: int = 0, whose: Sequence[str] = _GRAPH
) -> None:
    """Raise DataError naming the first edge of `edges` [2, k] with an id that is negative or not below `vertices`.

    vertices: one number, or those of sources and destinations, which `whose` names. first: the number of the first of
    these edges in the source.
    """
    limits = np.broadcast_to(np.asarray(vertices), 2)
    if edges.size == 0 or (edges.min() >= 0 and (edges.max(axis=1) < limits).all()):
        return

    # The first bad edge, and the bad one of its ends.
    bad = (edges < 0) | (edges >= limits[:, None])
    row = int(np.argmax(bad.any(axis=0)))
    end = int(np.argmax(bad[:, row]))
    value = int(edges[end, row])
    side = ("source", "destination")[end]
    fault = "is negative" if value < 0 else f"is out of range: {whose[end]} has vertices 0 ... {limits[end] - 1}"
    raise DataError(f"{name}: edge {first + row} (counted from 0): its {side} {value} {fault}")


class _RowGroup(NamedTuple):
    """Consecutive rows that are sorted at once: `rows` of them, with `keys` keys, from row `low` of `bucket` on."""

    bucket: int
    low: int
    rows: int
    keys: int


def read_only_ends(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the two rows of `edges`, contiguous and read-only, as kernels are compiled for one kind of arrays."""
    found = [np.ascontiguousarray(row).view(np.ndarray) for row in edges]
    for row in found:
        row.flags.writeable = False
    return found[0], found[1]


class EdgeSorter:
    """Sorts edges, which are added by chunks, into one adjacency, each edge both ways unless `directed`.

    name: what messages call the edges. columns: number of columns, where they are other keys than vertices, which have
    been checked; such edges are `directed` and no loops.
    """

    def __init__(
        self, vertices: int, *, directed: bool, name: str, workspace: Workspace, columns: int | None = None
    ) -> None:
        self.vertices = vertices
        self._directed, self._name, self._workspace = directed, name, workspace
        self._checked = columns is not None
        self._dtype = np.dtype(index_dtype(columns or vertices))

        self._key_shift = max(1, (max(vertices, columns or 1) - 1).bit_length()) + 1
        self.keep((0, vertices))

        # Edges held before they are scattered, and keys of a group that is sorted; several groups are at work at once.
        self._most_edges = min(_EDGES_IN_MEMORY, max(1, workspace.capacity(0.4) // _BYTES_PER_EDGE))
        self._most_keys = max(1, workspace.capacity(0.4) // _BYTES_PER_KEY // (workspace.threads + 2))

        # Edges that are not scattered yet. Without a folder, all of them are in memory, and later their keys.
        self._pending: list[np.ndarray] = []
        self._pending_edges = 0
        self._folder: Path | None = None
        self._read = self._loops = 0

    def keep(self, rows: tuple[int, int]) -> None:
        """Leave out keys of other rows than these, by first and end; before any edge is taken."""
        self._low, self._rows = rows[0], rows[1] - rows[0]
        # Buckets of 2**bucket_bits rows.
        bits = max(1, (self._rows - 1).bit_length())
        # Key and row must fit in 64 bits: beyond 2**36 vertices there are more buckets.
        self._bucket_bits = max(0, min(bits - _MOST_BUCKETS.bit_length() + 1, 64 - self._key_shift))
        self._buckets = ((self._rows - 1) >> self._bucket_bits) + 1
        self._sizes = np.zeros(self._buckets, np.int64)

    def add(self, edges: np.ndarray) -> None:
        """Take `edges` [2, k], sources and destinations. Raises DataError naming the first id out of range."""
        self.hold(self.checked(edges, self._read))

    def checked(self, edges: np.ndarray, first: int) -> np.ndarray:
        """Return `edges` [2, k] as numbers to `hold`; any thread may call this. first: the number of the first edge.

        Raises DataError naming the first id out of range.
        """
        if not self._checked:
            check_ids(edges, self.vertices, self._name, first)
        # Mapped edges of this type stay where they are.
        return edges.astype(self._dtype, copy=False)

    def hold(self, edges: np.ndarray) -> None:
        """Take `edges` that `checked` returned."""
        self._read += edges.shape[1]
        for start in range(0, edges.shape[1], self._most_edges):
            chunk = edges[:, start : start + self._most_edges]
            if self._pending_edges + chunk.shape[1] > self._most_edges:
                self._spill()
            self._pending.append(chunk)
            self._pending_edges += chunk.shape[1]

    def _scattered(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the first key of each bucket, int64[buckets + 1], and the keys, uint64, of all pending edges."""
        threads = self._workspace.threads
        # Each thread counts its share first, and then knows where to write without a lock.
        shares = [self._pending[worker::threads] for worker in range(threads)]
        self._pending, self._pending_edges = [], 0
        counts = np.zeros((threads, self._buckets), np.int64)
        where = self._low, self._rows, self._bucket_bits

        def count(worker: int) -> int:
            edges = shares[worker]
            return sum(count_keys(*read_only_ends(chunk), *where, self._directed, counts[worker]) for chunk in edges)

        def scatter(worker: int) -> None:
            for chunk in shares[worker]:
                scatter_keys(*read_only_ends(chunk), *where, self._key_shift, self._directed, place[worker], keys)

        # In each bucket the keys of the first share come first, then those of the next.
        with ThreadPoolExecutor(threads) as pool:
            self._loops += sum(pool.map(count, range(threads)))
            sizes = counts.sum(axis=0)
            self._sizes += sizes
            starts = np.concatenate([[0], np.cumsum(sizes)])
            place = starts[:-1] + np.cumsum(counts, axis=0) - counts
            keys = np.empty(starts[-1], np.uint64)
            list(pool.map(scatter, range(threads)))
        return starts, keys

    def _spill(self) -> None:
        """Append the keys of all pending edges to the files of their buckets."""
        if self._folder is None:
            self._folder = self._workspace.path("edges")
            self._folder.mkdir()
        self._workspace.take(self._pending_edges * 8 * (1 if self._directed else 2), "sorting edges")
        starts, keys = self._scattered()

        def append(bucket: int) -> None:
            with self._file(bucket).open("ab") as file:
                file.write(keys[starts[bucket] : starts[bucket + 1]])

        with ThreadPoolExecutor(self._workspace.threads) as pool:
            list(pool.map(append, np.flatnonzero(np.diff(starts)).tolist()))

    def finish(self, progress: Progress = SILENT) -> tuple[Adjacency, EdgeCounts]:
        """Return the adjacency of all edges taken, mapped from temporary files, and the counts of edges."""
        if self._folder is not None:
            self._spill()
        else:
            self._starts, self._keys = self._scattered()

        # Threads sort groups; what they return is written in the order of rows.
        indptr = self._workspace.array("indptr", (self._rows + 1,), np.int64)
        path = self._workspace.path("indices")
        written = distinct = 0
        progress.start(self._rows, "vertices")
        with self._workspace.written(path) as file:
            for group, bounds, columns, forward in in_order(self._sorted, self._groups(), self._workspace.threads):
                first = (group.bucket << self._bucket_bits) + group.low
                indptr[first + 1 : first + 1 + group.rows] = bounds[1:] + written
                file.write(columns)
                written += len(columns)
                distinct += forward
                progress.reach(first + group.rows)
        duplicates = self._read - self._loops - distinct
        counts = EdgeCounts(self._read, self._loops, duplicates, written - distinct, written)
        return Adjacency(indptr, self._workspace.map(path, self._dtype, (written,))), counts

    def _sorted(self, group: _RowGroup) -> tuple[_RowGroup, np.ndarray, np.ndarray, int]:
        """Return the group with the bounds of its rows, their columns, and the edges that one edge as read leads to."""
        keys = self._keys_of(group)
        bounds = np.zeros(group.rows + 1, np.int64)
        columns = np.empty(len(keys), np.uint32 if self._dtype.itemsize == 4 else np.uint64)
        written, distinct = sort_rows(keys, self._key_shift, group.low, bounds, columns)
        return group, bounds, columns[:written].view(self._dtype), distinct

    def _groups(self) -> Iterator[_RowGroup]:
        """Yield a group per bucket, and several for a bucket that does not fit in memory."""
        for bucket, size in enumerate(self._sizes.tolist()):
            rows = min(1 << self._bucket_bits, self._rows - (bucket << self._bucket_bits))
            if self._folder is None or size <= self._most_keys:
                yield _RowGroup(bucket, 0, rows, size)
                continue

            # As many rows as memory holds, one at least; the bucket's files are read once for each group.
            counts = np.zeros(rows, np.int64)
            for block in self._blocks(bucket):
                count_rows(block, self._key_shift, counts)
            total = np.cumsum(counts)
            low = 0
            while low < rows:
                before = total[low - 1] if low else 0
                high = max(low + 1, int(np.searchsorted(total, before + self._most_keys, "right")))
                yield _RowGroup(bucket, low, high - low, int(total[high - 1] - before))
                low = high

    def _keys_of(self, group: _RowGroup) -> np.ndarray:
        """Return the keys of a group, in any order; of a row too large for memory, each distinct key once."""
        if self._folder is None:
            return self._keys[self._starts[group.bucket] : self._starts[group.bucket + 1]]
        if self._sizes[group.bucket] <= self._most_keys:
            return self._all_keys(group)

        # Some rows of a bucket, or a single one with more edges than memory holds.
        fits = group.keys <= self._most_keys
        keys, filled = np.empty(group.keys if fits else 0, np.uint64), 0
        for block in self._blocks(group.bucket):
            out = keys if fits else np.empty(len(block), np.uint64)
            filled = take_rows(block, self._key_shift, group.low, group.low + group.rows, out, filled if fits else 0)
            if not fits:
                keys = distinct(np.concatenate([keys, out[:filled]]))
        return keys

    def _file(self, bucket: int) -> Path:
        assert self._folder is not None
        return self._folder / str(bucket)

    def _blocks(self, bucket: int) -> Iterator[np.ndarray]:
        """Yield the keys in the file of `bucket`, some at a time."""
        if self._sizes[bucket]:
            with self._file(bucket).open("rb") as file:
                while len(block := np.fromfile(file, np.uint64, _READ_KEYS)):
                    yield block

    def _all_keys(self, group: _RowGroup) -> np.ndarray:
        """Read all keys of a bucket and remove its file: each bucket is read once."""
        if not group.keys:
            return np.empty(0, np.uint64)
        keys = np.fromfile(self._file(group.bucket), np.uint64, group.keys)
        self._file(group.bucket).unlink()
        return keys
