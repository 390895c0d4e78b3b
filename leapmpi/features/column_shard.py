"""Features by columns: some columns of every vertex in the memory of this rank, read from the files of parts.

Made from any dataset while it is loaded. Where the files hold rows alone, each rank reads its columns of the rows of
all parts; where they hold columns too, it reads those of the parts that have some of its own. Pieces of bounded size
go from the files straight to their place.
"""

from __future__ import annotations

import numpy as np

from leapmpi.dataset.columns import column_bounds
from leapmpi.dataset.hdf5.reader import reading
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.row_blocks import row_ranges
from leapmpi.dataset.sparse_features import joined
from leapmpi.features.shard import HostShard
from leapmpi.features.sparse_shard import SparseShard
from leapmpi.system.memory import check_memory


def load_columns(dataset: Dataset, first: int, end: int, host: str, sharers: int = 1) -> HostShard:
    """Columns `first` to `end` (exclusive) of the features of all vertices, in the type they have at rest.

    `sharers` ranks of `host` load about as much at the same time. Raises ResourceError when its memory will not hold
    it, DataError when a part is missing or damaged.
    """
    if dataset.sparse:
        return _sparse_columns(dataset, first, end, host, sharers)
    dtype = dataset.part(0).features.dtype
    wanted = dataset.vertices * (end - first) * dtype.itemsize * sharers
    check_memory(wanted, "features held by columns take", host)
    values = np.empty((dataset.vertices, end - first), dtype)
    (_copy_columns if dataset.has_columns else _copy_of_rows)(dataset, first, end, values)
    return HostShard([values], 0)


def _sparse_columns(dataset: Dataset, first: int, end: int, host: str, sharers: int) -> SparseShard:
    """Entries in the wanted columns, of all rows; as many as if columns were alike are taken to be needed."""
    parts = [dataset.part(part) for part in range(dataset.parts)]
    entries = sum(part.features.indices.nbytes + part.features.data.nbytes for part in parts)
    wanted = 8 * dataset.vertices + entries * (end - first) // dataset.feature_dim
    check_memory(wanted * sharers, "features held by columns take", host)
    blocks = []
    for part in parts:
        with reading(part.path):
            blocks.append(part.features.columns(first, end))
    return SparseShard([joined(blocks)], 0)


def _copy_of_rows(dataset: Dataset, first: int, end: int, values: np.ndarray) -> None:
    parts = [dataset.part(part) for part in range(dataset.parts)]
    for part, begin in zip(parts, dataset.offsets, strict=False):
        with reading(part.path):
            for start, stop in row_ranges(len(part.features), part.features.strides[0]):
                values[begin + start : begin + stop] = part.features[start:stop, first:end]


def _copy_columns(dataset: Dataset, first: int, end: int, values: np.ndarray) -> None:
    bounds = column_bounds(dataset.feature_dim, dataset.parts)
    for number in np.flatnonzero((bounds[:-1] < end) & (bounds[1:] > first)):
        part = dataset.part(int(number))
        begin, stop = max(first, int(bounds[number])), min(end, int(bounds[number + 1]))
        with reading(part.path):
            for top, bottom in row_ranges(dataset.vertices, part.columns.strides[0]):
                here = part.columns[top:bottom, begin - bounds[number] : stop - bounds[number]]
                values[top:bottom, begin - first : stop - first] = here
