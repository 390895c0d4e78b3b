"""Sparse feature rows of this rank, and how many entries the rows of all vertices have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leapmpi.dataset.hdf5.reader import reading
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.sparse_features import SparseFeatures
from leapmpi.errors import DataError
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.system.jit import compiled


@compiled
def _copy(indptr, indices, bits, rows, width, target_indptr, target_indices, target_bits, positions):
    """Copy row rows[i] to row positions[i] of the target, which has as many entries.

    Returns the i of the first row with a column outside 0..width - 1, -1 for none.
    """
    for i in range(len(rows)):
        place = target_indptr[positions[i]]
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            # Checked where the entry is read anyway: contents of parts are not verified in every run.
            if indices[e] < 0 or indices[e] >= width:
                return i
            target_indices[place] = indices[e]
            target_bits[place] = bits[e]
            place += 1
    return -1


def place_entries(source: SparseFeatures, rows: np.ndarray, target: SparseFeatures, positions: np.ndarray) -> None:
    """Place row rows[i] of `source` as row positions[i] of `target`, which has room for it; both int64[k].

    Raises DataError for a column out of range: products would read beyond the weights.
    """
    bits = f"u{source.data.itemsize}"
    entries = (np.asarray(source.indptr), np.asarray(source.indices), np.asarray(source.data).view(bits))
    bad = _copy(*entries, rows, source.width, target.indptr, target.indices, target.data.view(bits), positions)
    if bad >= 0:
        raise DataError(
            f"features of a vertex name a column outside 0..{source.width - 1} (row {rows[bad]} of its part): the "
            "dataset is damaged; find the place with leapmpi-prep check"
        )


def empty_rows(counts: np.ndarray, like: SparseFeatures) -> SparseFeatures:
    """Allocate unfilled rows of `counts` (integers[k]) entries each, of the width and type of `like`."""
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    return SparseFeatures(
        indptr, np.empty(int(indptr[-1]), np.int32), np.empty(int(indptr[-1]), like.dtype), like.width
    )


def fill_entry_counts(dataset: Dataset, part: int, counts: np.ndarray) -> None:
    """Write how many entries each row of part `part` has to its vertex in `counts` int32[n]. Raises DataError."""
    opened = dataset.part(part)
    with reading(opened.path):
        counts[dataset.offsets[part] : dataset.offsets[part + 1]] = np.diff(opened.sparse_features.indptr)


class SparseShard(HostShard):
    """Sparse rows in host memory or mapped: one SparseFeatures per part, in vertex order.

    `first` is the global id of the first row; counts: int32[n], entries of the rows of all vertices, needed where rows
    are sent.
    """

    parts: list[SparseFeatures]

    def __init__(self, parts: Sequence[SparseFeatures], first: int, counts: np.ndarray | None = None) -> None:
        self._hold(list(parts), first)
        self.addressable = False
        self.counts = counts
        self.entry_bytes = parts[0].entry_bytes
        self.mean_entries = sum(len(part.indices) for part in parts) / max(1, int(self.bounds[-1] - self.bounds[0]))
        self.row_bytes = max(1, round(self.mean_entries * self.entry_bytes))
        """Bytes of the entries of a row, on average."""

    @property
    def entry_counts(self) -> np.ndarray:
        """int32[n]: `counts`, of a shard whose rows are sent."""
        assert self.counts is not None
        return self.counts

    @property
    def in_place(self) -> bool:
        """No: sparse rows are copied."""
        return False

    def take(self, ids: np.ndarray) -> SparseFeatures:
        """Return the rows of `ids` (int64[k], all in this shard), in order."""
        if len(self.parts) == 1:
            counts = self.parts[0].counts(ids - self.bounds[0])
        else:
            counts = np.empty(len(ids), np.int64)
            for part, first, chosen, where in self.split(ids):
                counts[where] = part.counts(chosen - first)
        rows = empty_rows(counts, self.parts[0])
        self.place_entries(ids, rows, np.arange(len(ids)))
        return rows

    def place_entries(self, ids: np.ndarray, target: SparseFeatures, positions: np.ndarray) -> None:
        """Place the row of vertex ids[i] as row positions[i] of `target`.

        Raises DataError for a column out of range.
        """
        for part, first, chosen, where in self.split(ids):
            place_entries(part, chosen - first, target, positions[where])
