"""Features by columns: some columns of every vertex in the memory of this rank, read from the files of all parts.

Made from any dataset while it is loaded: the files hold rows, of which each rank reads its columns only. Pieces of
rows of bounded size go from the files straight to their place.
"""

from __future__ import annotations

import numpy as np

from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.shard import HostShard
from leapmpi.dataset.storage import reading, row_ranges
from leapmpi.memory import check_memory


def load_columns(dataset: Dataset, first: int, end: int, host: str, sharers: int = 1) -> HostShard:
    """Columns `first` to `end` (exclusive) of the features of all vertices, in the type they have at rest.

    `sharers` ranks of `host` load about as much at the same time. Raises ResourceError when its memory will not hold
    it, DataError when a part is missing or damaged.
    """
    parts = [dataset.part(part) for part in range(dataset.parts)]
    dtype = parts[0].features.dtype
    wanted = dataset.vertices * (end - first) * dtype.itemsize * sharers
    check_memory(wanted, "features held by columns take", host)
    values = np.empty((dataset.vertices, end - first), dtype)
    for part, begin in zip(parts, dataset.offsets, strict=False):
        with reading(part.path):
            for start, stop in row_ranges(len(part.features), part.features.strides[0]):
                values[begin + start : begin + stop] = part.features[start:stop, first:end]
    return HostShard([values], 0)
