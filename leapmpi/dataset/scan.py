"""Single pass over the rows of a graph or a part, in blocks: checks, content hash, and digests or a file.

Arrays may be larger than memory. Other threads check and hash a block while this one digests or writes earlier blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from leapmpi.dataset.content_hash import content_lanes, edge_lanes, time_lanes
from leapmpi.dataset.edge_data import check_edge_values
from leapmpi.dataset.graph import VertexRows
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.row_blocks import BLOCK_BYTES, row_groups
from leapmpi.dataset.sparse_features import Features, arrays_of, row_bytes
from leapmpi.dataset.validation import check_features, check_lists
from leapmpi.system.worker_threads import in_order

Sink = Callable[[np.ndarray], None]

EDGE_ARRAYS = (names.EDGE_WEIGHT, names.EDGE_FEATURES, names.EDGE_TIME, names.EDGE_LABELS, names.RELATION)
_SCANNED = (names.INDICES, names.FEATURES, names.FEATURE_INDICES, names.FEATURE_DATA, *EDGE_ARRAYS)


def is_scanned(name: str) -> bool:
    """Return whether a scan can pass array `name` to sinks block by block: those that may be larger than memory."""
    return name in _SCANNED or (name.startswith("types/") and name.endswith(f"/{names.FEATURES}"))


def is_natural(original_id: np.ndarray) -> bool:
    """Return whether strictly ascending, non-negative ids are 0, 1, 2, ..."""
    return len(original_id) > 0 and int(original_id[-1]) == len(original_id) - 1


class _Section(NamedTuple):
    """Rows start ... stop - 1, whose features are rows of `features`, the array `name`; its row 0 is row `first`."""

    start: int
    stop: int
    first: int
    features: Features | None
    name: str


def _blocks(rows: VertexRows) -> Iterator[_Section]:
    """Cut `rows` into blocks of bounded size, each of vertices of one type."""
    entry = rows.indices.itemsize + rows.edge_data.row_bytes
    for first, end, features in rows.sections():
        name = names.FEATURES if rows.typed is None else names.type_features(int(rows.typed.types_of(np.array(first))))
        width = 0 if features is None else row_bytes(features)
        for start, stop in row_groups(rows.indptr[first : end + 1], width + 16, entry, BLOCK_BYTES):
            yield _Section(first + start, first + stop, first, features, name)


def _share_of(rows: VertexRows, share: tuple[float, float]) -> Iterable[_Section]:
    """Return the blocks of a share of `rows`. Shares that follow one another have each block once."""
    if share == (0, 1):
        return _blocks(rows)
    blocks = list(_blocks(rows))
    low, high = (round(each * len(blocks)) for each in share)
    return blocks[low:high]


def scan(
    rows: VertexRows,
    original_of: np.ndarray | None,
    vertices: int,
    first: int,
    where: str,
    *,
    features: bool = True,
    hashed: bool = True,
    share: tuple[float, float] = (0, 1),
    sinks: Mapping[str, Sink] | None = None,
    progress: Callable[[int], object] | None = None,
) -> np.ndarray:
    """Check in-neighbours, features and edge data of `rows`; returns their content lanes uint64[2] (see content_hash).

    original_of: int64[vertices], the original id of each vertex that indices may name; None where ids are original ids.
    first: the id of the first row. features: if false, features, of edges too, are neither checked nor hashed. hashed:
    if false, the lanes are zeros. share: begin and end, from 0 to 1, of the blocks that are scanned. sinks: by array
    name, a function that gets all blocks of the array, in order, in this thread.
    progress: called with the number of rows done. `rows.indptr` must have been checked.

    Raises DataError naming array, row and value of the first fault; `where` opens the message.
    """
    scanned = _Scan(rows, original_of, vertices, first, where, features, hashed)
    sinks = sinks or {}

    # Results are in order; lanes add up modulo 2**64.
    total = np.zeros(2, np.uint64)
    for done, lanes, arrays in in_order(scanned.examined, _share_of(rows, share)):
        with np.errstate(over="ignore"):
            total += lanes
        for name, array in arrays.items():
            if name in sinks:
                sinks[name](array)
        if progress:
            progress(done)
    return total


@dataclass(frozen=True)
class _Scan:
    """Arguments of a `scan`, by which any thread checks and hashes a block."""

    rows: VertexRows
    original_of: np.ndarray | None
    vertices: int
    first: int
    where: str
    features: bool
    hashed: bool

    def examined(self, section: _Section) -> tuple[int, np.ndarray, dict[str, np.ndarray]]:
        """Check and hash the rows start ... stop - 1; return (stop, lanes, arrays by name)."""
        rows, where, (start, stop) = self.rows, self.where, section[:2]
        indptr = np.asarray(rows.indptr[start : stop + 1])
        indices = np.asarray(rows.indices[indptr[0] : indptr[-1]])
        arrays = rows.edge_data.arrays(features=self.features)
        of_edges = {name: np.asarray(array[indptr[0] : indptr[-1]]) for name, array in arrays.items()}
        types = None if rows.types is None else (rows.types, of_edges[names.RELATION], rows.original_id[start:stop])
        check_lists(indptr, indices, self.original_of, self.vertices, self.first + start, where, types)
        block = None
        if self.features and section.features is not None:
            block = section.features[start - section.first : stop - section.first]
            check_features(block, where, start - section.first, section.name)
        for name, values in of_edges.items():
            check_edge_values(name, values, int(indptr[0]), where, rows.edge_data.classes)
        named = arrays_of(block) if section.name == names.FEATURES else {section.name: np.asarray(block)}
        arrays = {names.INDICES: indices, **(named if block is not None else {}), **of_edges}
        lanes = self._lanes(section, indptr, indices, block, of_edges) if self.hashed else np.zeros(2, np.uint64)
        return stop, lanes, arrays

    def _lanes(
        self,
        section: _Section,
        indptr: np.ndarray,
        indices: np.ndarray,
        features: Features | None,
        of_edges: dict[str, np.ndarray],
    ) -> np.ndarray:
        """Return the content lanes uint64[2] of the rows of `section`."""
        rows, chosen = self.rows, slice(section.start, section.stop)
        ids = rows.original_id[chosen]
        split = None if rows.split is None else rows.split[chosen]
        labels = None if rows.labels is None else rows.labels[chosen]
        lanes = content_lanes(ids, split, labels, features, indptr - indptr[0], indices, self.original_of)
        with np.errstate(over="ignore"):
            if rows.time is not None:
                lanes += time_lanes(rows.time[chosen], ids)
            if of_edges:
                lanes += edge_lanes(rows.edge_data.with_arrays(of_edges), ids, indptr, indices, self.original_of)
        return lanes
