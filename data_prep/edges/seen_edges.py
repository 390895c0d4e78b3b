"""Edges that are read once before they can be sorted: all their ids must be known, or tasks share the reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.edges.edge_keys import distinct
from data_prep.edges.edge_records import Chunk, with_records
from data_prep.edges.edge_stream import EdgeStream
from data_prep.progress import Progress
from data_prep.workspace import Workspace
from leapmpi.dataset.topology import places_among
from leapmpi.system.stage_files import Stored
from leapmpi.system.worker_threads import in_order

_BYTES_PER_ID = 9  # of a table by id: whether it occurs, and its place

READ = "edges-read"
"""Stage after which the edges of a source are in temporary files of the workspace."""

_SEEN = ("count", "smallest", "largest")
_EDGES, _RECORDS = "edges", "records"


class SeenEdges:
    """Edges that have all been read once, and are read again: all ids must be known before the edges can be sorted.

    They are in a temporary file, unless they are mapped. count: their number; smallest, largest: of the ids.
    """

    def __init__(self, edges: EdgeStream, workspace: Workspace) -> None:
        self._edges, self._workspace = edges, workspace
        self.carries = edges.carries
        self._files: list[Path] = []
        self._chunks: list[tuple[int, np.dtype]] = []
        self.count, self.smallest, self.largest = 0, 0, -1

    def read(self, progress: Progress) -> None:
        """Read the edges, or take them from an earlier run, which a later one does from this."""
        resumable = self._edges.resumable and not self._edges.mapped
        if resumable and (found := self._workspace.finished(READ)):
            self.restore(*found)
            return
        self.stage(progress)
        if resumable and self.count:
            self._workspace.finish(READ, *self.stored())

    def stage(self, progress: Progress) -> None:
        """Read the edges into temporary files, unless they are mapped."""
        edges, workspace = self._edges, self._workspace
        chunks = (each for each in with_records(edges.chunks()) if each[0].shape[1])
        seen = self._counted(in_order(_bounds if edges.mapped else _narrowed, chunks, workspace.threads), progress)
        # Mapped edges are only counted: they can be read again from where they are.
        if edges.mapped:
            for _ in seen:
                pass
            return

        self._files = [workspace.path("staged")] + [workspace.path("staged-records")] * (edges.carries is not None)
        with ExitStack() as opened:
            files = [opened.enter_context(workspace.written(path)) for path in self._files]
            for chunk, records in seen:
                self._chunks.append((chunk.shape[1], chunk.dtype))
                for file, array in zip(files, (chunk, records), strict=False):
                    file.write(np.ascontiguousarray(array).view(np.uint8).data)

    def stored(self) -> Stored:
        """Return values and arrays by which a stage holds the edges."""
        values = {name: getattr(self, name) for name in _SEEN}
        values["chunks"] = [(count, dtype.str) for count, dtype in self._chunks]
        arrays = {
            name: self._workspace.map(path, np.uint8, (path.stat().st_size,))
            for name, path in zip((_EDGES, _RECORDS), self._files, strict=False)
        }
        return values, arrays

    def restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Take the files of a stage, which `stored` describes."""
        self.count, self.smallest, self.largest = (values[name] for name in _SEEN)
        self._chunks = [(count, np.dtype(dtype)) for count, dtype in values["chunks"]]
        self._files = [Path(str(each.filename)) for each in arrays.values() if isinstance(each, np.memmap)]

    def _counted(self, seen: Iterator[_Seen], progress: Progress) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        for chunk, records, smallest, largest in seen:
            self.smallest, self.largest = min(self.smallest, smallest), max(self.largest, largest)
            self.count += chunk.shape[1]
            yield chunk, records
            progress.reach(self.count)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the edges again, with their data."""
        if self._edges.mapped:
            yield from self._edges.chunks()
            return
        if not self._chunks:
            return
        with ExitStack() as opened:
            files = [opened.enter_context(path.open("rb")) for path in self._files]
            for count, dtype in self._chunks:
                chunk = np.fromfile(files[0], dtype, 2 * count).reshape(2, count)
                yield chunk if self.carries is None else (chunk, np.fromfile(files[1], self.carries, count))

    def remove(self) -> None:
        """Remove the temporary files."""
        for path in self._files:
            path.unlink()

    def numbering(self) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray] | None]:
        """Return all ids (int64, ascending), and a function from ids to their places, None where they are equal."""
        # Where ids are dense enough, a table by id costs far less than searches.
        if self.smallest >= 0 and (self.largest + 1) * _BYTES_PER_ID <= self._workspace.capacity(0.25):
            occurs = np.zeros(self.largest + 1, bool)
            for chunk, _ in with_records(self.chunks()):
                occurs[chunk[0]] = occurs[chunk[1]] = True
            ids = np.flatnonzero(occurs)
            places = np.cumsum(occurs, dtype=np.int32 if len(ids) < 2**31 else np.int64) - 1
            number = places.__getitem__
        else:
            ids = self._sorted_ids()
            number = partial(np.searchsorted, ids)
        natural = len(ids) > 0 and ids[0] == 0 and ids[-1] == len(ids) - 1
        return ids, None if natural else number

    def _sorted_ids(self) -> np.ndarray:
        found = np.empty(0, np.int64)
        for chunk, _ in with_records(self.chunks()):
            fresh = distinct(chunk.reshape(-1).astype(np.int64))
            fresh = fresh[places_among(fresh, found) < 0]
            if len(fresh):
                found = np.sort(np.concatenate([found, fresh]), kind="stable")  # two runs: a merge
        return found


_Seen = tuple[np.ndarray, np.ndarray | None, int, int]
"""Edges, their records, the smallest and the largest id."""


def _bounds(each: tuple[np.ndarray, np.ndarray | None]) -> _Seen:
    return *each, int(each[0].min()), int(each[0].max())


def _narrowed(each: tuple[np.ndarray, np.ndarray | None]) -> _Seen:
    """Return the edges in four bytes an id, where these suffice."""
    chunk, records, smallest, largest = _bounds(each)
    narrow = smallest >= -(2**31) and largest < 2**31
    return np.ascontiguousarray(chunk, np.int32 if narrow else np.int64), records, smallest, largest
