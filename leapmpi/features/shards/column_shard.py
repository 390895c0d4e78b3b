"""Features by columns: some columns of every vertex in the memory of this rank, read from the files of parts.

Where the files hold only rows, each rank reads its columns of the rows of all parts. Where they hold columns too, it
reads the parts that have some of its columns. Blocks of bounded size are copied from the files to their places.
"""

from __future__ import annotations

import numpy as np

from leapmpi.dataset.hdf5.reader import reading
from leapmpi.dataset.hdf5.row_blocks import row_ranges
from leapmpi.dataset.partitioned import Dataset, Part, column_bounds
from leapmpi.dataset.sparse_features import joined
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.features.shards.sparse_shard import SparseShard
from leapmpi.system.memory import check_memory


def load_columns(dataset: Dataset, first: int, end: int, host: str, sharers: int = 1) -> HostShard:
    """Load columns `first` to `end` (exclusive) of the features of all vertices, in the stored type.

    `sharers` ranks of `host` load about as much at the same time. Raises ResourceError when the memory of `host` is too
    small, DataError when a part is missing or damaged.
    """
    check_columns(dataset, first, end, host, sharers)
    if dataset.sparse:
        return _sparse_columns(dataset, first, end)
    dtype = dataset.part(0).dense_features.dtype
    values = np.empty((dataset.vertices, end - first), dtype)

    # A dataset prepared by columns has them in few files; else every rank reads all rows for its columns.
    bounds = column_bounds(dataset.feature_dim, dataset.parts).tolist()
    for number in range(dataset.parts):
        if not dataset.has_columns:
            rows = values[dataset.offsets[number] : dataset.offsets[number + 1]]
            part = dataset.part(number)
            _copy(part, part.dense_features, slice(first, end), rows)
        elif (begin := max(first, bounds[number])) < (stop := min(end, bounds[number + 1])):
            part = dataset.part(number)
            assert part.columns is not None, "the dataset has columns"
            chosen = slice(begin - bounds[number], stop - bounds[number])
            _copy(part, part.columns, chosen, values[:, begin - first : stop - first])
    scale = dataset.part(0).feature_scale
    return HostShard([values], 0, None if scale is None else scale[:, first:end])


def check_columns(dataset: Dataset, first: int, end: int, host: str, sharers: int = 1) -> None:
    """Raise ResourceError where the memory of `host` is too small for `load_columns`.

    All columns of sparse features count as equally full.
    """
    if dataset.sparse:
        parts = [dataset.part(part).sparse_features for part in range(dataset.parts)]
        entries = sum(part.indices.nbytes + part.data.nbytes for part in parts)
        needed = 8 * dataset.vertices + entries * (end - first) // dataset.feature_dim
    else:
        needed = dataset.vertices * (end - first) * dataset.part(0).dense_features.dtype.itemsize
    check_memory(needed * sharers, "features held by columns take", host)


def _sparse_columns(dataset: Dataset, first: int, end: int) -> SparseShard:
    """Return the entries of all rows in these columns."""
    blocks = []
    for part in map(dataset.part, range(dataset.parts)):
        with reading(part.path):
            blocks.append(part.sparse_features.columns(first, end))
    return SparseShard([joined(blocks)], 0)


def _copy(part: Part, source: np.ndarray, columns: slice, target: np.ndarray) -> None:
    """Copy target[...] = source[:, columns], both of `part`, by blocks of rows."""
    with reading(part.path):
        # Mapped rows in blocks: their pages need not be resident at once.
        for start, stop in row_ranges(len(source), source.strides[0]):
            target[start:stop] = source[start:stop, columns]
