"""Edges between a source and the sort: read by chunks, their ids replaced by vertex numbers where necessary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.edges.edge_keys import distinct
from data_prep.edges.edge_placement import EdgePlacer
from data_prep.edges.edge_records import Chunk, EdgeArrays, with_records
from data_prep.edges.edge_sort import Adjacency, EdgeCounts, EdgeSorter
from data_prep.progress import SILENT, Progress
from data_prep.workspace import Workspace, require
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.system.worker_threads import in_order

_EDGES_AT_ONCE = 1 << 20
_BYTES_PER_ID = 9  # of a table by id: whether it occurs, and its place
_BYTES_PER_VERTEX = 20  # held while components, labels and splits are checked; the rest is mapped
_MOST_VERTICES = 1 << 40  # refused before the edges are read rather than after


@dataclass(frozen=True)
class EdgeStream:
    """Edges that are read on demand: `chunks()` yields integers [2, k], sources over destinations.

    Where `carries` is the type of a record, it yields pairs of these and of what the edges carry.

    count: the number of all edges, where that is known beforehand. final: maps the ids in the chunks to vertex numbers,
    for streams whose numbers are known only once all edges have been read and the vertices are counted. mapped: the
    edges are those of an array, which are read again rather than copied to a temporary file.
    """

    chunks: Callable[[], Iterator[Chunk]]
    count: int | None = None
    final: Callable[[np.ndarray], np.ndarray] | None = None
    carries: np.dtype | None = None
    mapped: bool = False

    @property
    def resumable(self) -> bool:
        """Whether a later run need not read the edges again: they alone are learned from the source."""
        return self.final is None


Edges = np.ndarray | EdgeStream
CountVertices = Callable[[int, int], int]
"""Gives the number of vertices from the largest id (or the number of ids less one) and the number of edges."""


def as_stream(edges: Edges, arrays: EdgeArrays | None = None) -> EdgeStream:
    """Return `edges`, an array [2, E] that may be mapped or already a stream, as a stream with the data `arrays`.

    Raises DataError, later also from the stream, when `arrays` have another number of rows.
    """
    if not isinstance(edges, EdgeStream):
        # In chunks: the array may be mapped and larger than memory.
        starts, whole = range(0, edges.shape[1], _EDGES_AT_ONCE), edges
        edges = EdgeStream(
            lambda: (whole[:, start : start + _EDGES_AT_ONCE] for start in starts),
            edges.shape[1],
            mapped=True,
        )
    if not arrays:
        return edges
    if edges.count is not None:
        arrays.check_length(edges.count)
    plain = edges

    def chunks() -> Iterator[Chunk]:
        start = 0
        for chunk, _ in with_records(plain.chunks()):
            yield chunk, arrays.records(start, start + chunk.shape[1])
            start += chunk.shape[1]
        # Streams of unknown length are checked once they have been read.
        arrays.check_length(start)

    return replace(plain, chunks=chunks, carries=arrays.dtype)


READ, SORTED = "edges-read", "edges-sorted"
"""Stages after which the edges of a source, and then the adjacency, are in temporary files of the workspace."""

_SEEN = ("count", "smallest", "largest")


class _SeenEdges:
    """Edges that have all been read once, and are read again: all ids must be known before the edges can be sorted.

    They are in a temporary file, unless they are mapped. count: their number; smallest, largest: of the ids.
    """

    def __init__(self, edges: EdgeStream, workspace: Workspace, progress: Progress) -> None:
        self._edges, self._workspace = edges, workspace
        self.carries = edges.carries
        self._files: list[Path] = []
        self._chunks: list[tuple[int, np.dtype]] = []
        self.count, self.smallest, self.largest = 0, 0, -1
        if edges.resumable and not edges.mapped and (found := workspace.finished(READ)):
            self._again(*found)
            return
        chunks = (each for each in with_records(edges.chunks()) if each[0].shape[1])
        seen = self._counted(in_order(_bounds if edges.mapped else _narrowed, chunks, workspace.threads), progress)
        if edges.mapped:
            for _ in seen:
                pass
            return

        # Into temporary files, which a later run reads instead of the source.
        self._files = [workspace.path("staged")] + [workspace.path("staged-records")] * (edges.carries is not None)
        with ExitStack() as opened:
            files = [opened.enter_context(workspace.written(path)) for path in self._files]
            for chunk, records in seen:
                self._chunks.append((chunk.shape[1], chunk.dtype))
                for file, array in zip(files, (chunk, records), strict=False):
                    file.write(np.ascontiguousarray(array).view(np.uint8).data)
        if edges.resumable and self.count:
            values = {name: getattr(self, name) for name in _SEEN} | {
                "chunks": [(count, dtype.str) for count, dtype in self._chunks]
            }
            arrays = {path.name: workspace.map(path, np.uint8, (path.stat().st_size,)) for path in self._files}
            workspace.finish(READ, values, arrays)

    def _again(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Take the files of an earlier run."""
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
        if not self._files:
            yield from self._edges.chunks()
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
        """Return all ids that occur, ascending, and a function from ids to their places; None where they are equal."""
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
            if len(found):
                place = np.minimum(np.searchsorted(found, fresh), len(found) - 1)
                fresh = fresh[found[place] != fresh]
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


def check_memory(vertices: int, workspace: Workspace) -> None:
    """Raise ResourceError where `workspace` has no memory for the arrays of so many vertices."""
    needed = f"importing {vertices:,} vertices", "allow more, or import on another machine"
    require(workspace.memory, vertices * _BYTES_PER_VERTEX, *needed)


def sort_edges(
    edges: Edges,
    vertices: int | CountVertices,
    *,
    compact: bool,
    directed: bool,
    name: str,
    workspace: Workspace,
    progress: Progress = SILENT,
    arrays: EdgeArrays | None = None,
    notes: list[str] | None = None,
    carried: bool = True,
) -> tuple[Adjacency, EdgeCounts, np.ndarray | None]:
    """Sort `edges` into an adjacency, each both ways unless `directed`; `name` is what messages call them.

    Returns also what became of them, and the source's id of each vertex, where vertices were renumbered.
    vertices: their number, or a function that gives it from the largest id and the number of edges. compact: ids are
    any numbers, and vertices are numbered by ascending id. arrays: what edges carry, unless the stream itself brings
    it; the adjacency then has it too, and `notes` grow where edges were read several times. carried: if false,
    all of that is left out. Raises DataError naming the
    first edge with a bad id or a value that is not finite.
    """
    stream = as_stream(edges, arrays if carried else None)
    final, seen, ids = stream.final, None, None
    notes, resumable = notes if notes is not None else [], stream.resumable
    if resumable and (before := sorted_before(workspace)):
        notes += before.notes
        return before.adjacency, before.counts, before.ids

    # Where the vertices are not counted yet, read all edges first.
    progress.start(stream.count, "edges read")
    if callable(vertices):
        seen = stream = _SeenEdges(stream, workspace, progress)
        if compact:
            ids, final = seen.numbering()
        vertices = vertices(seen.largest if ids is None else len(ids) - 1, seen.count)
        ids = ids if final else None
    if vertices > _MOST_VERTICES:
        check_memory(vertices, workspace)

    progress.start(stream.count, "edges taken")
    carries = stream.carries if carried else None
    adjacency, counts, found_notes = adjacency_of(
        with_records(stream.chunks()), vertices, carries, directed, name, workspace, progress, final=final
    )
    notes += found_notes
    if resumable:
        SortedEdges(adjacency, counts, found_notes, ids).record(workspace)
    if seen:
        seen.remove()
    return adjacency, counts, ids


@dataclass(frozen=True)
class SortedEdges:
    """Edges once they are sorted, what became of them, and notes; ids: the source's, of vertices it renumbered."""

    adjacency: Adjacency
    counts: EdgeCounts
    notes: list[str]
    ids: np.ndarray | None = None

    def record(self, workspace: Workspace) -> None:
        """Finish the stage, from which a run that is stopped later goes on."""
        data = self.adjacency.data
        arrays = {"indptr": self.adjacency.indptr, "indices": self.adjacency.indices, **data.arrays()}
        arrays |= {} if self.ids is None else {"ids": self.ids}
        values = {"counts": asdict(self.counts), "notes": self.notes, "relations": data.relations}
        workspace.finish(SORTED, values, arrays)


def sorted_before(workspace: Workspace) -> SortedEdges | None:
    """Return the edges that an earlier run sorted; None where it did not come so far."""
    if (found := workspace.finished(SORTED)) is None:
        return None
    values, arrays = found
    indptr, indices, ids = arrays.pop("indptr"), arrays.pop("indices"), arrays.pop("ids", None)
    data = EdgeData(relations=values["relations"]).with_arrays(arrays)
    return SortedEdges(Adjacency(indptr, indices, data), EdgeCounts(**values["counts"]), values["notes"], ids)


def adjacency_of(
    chunks: Iterator[tuple[np.ndarray, np.ndarray | None]],
    vertices: int,
    carries: np.dtype | None,
    directed: bool,
    name: str,
    workspace: Workspace,
    progress: Progress,
    columns: int | None = None,
    final: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[Adjacency, EdgeCounts, list[str]]:
    """Sort `chunks` of vertex numbers [2, k] with records of type `carries` [k]; other arguments are those of a sorter.

    final: maps ids to vertex numbers, where they are not. Returns the adjacency with its edge data, what became of the
    edges, and notes about edges that were read several times.
    """
    sorter = EdgeSorter(vertices, directed=directed, name=name, workspace=workspace, columns=columns)
    placer = None
    if carries is not None:
        placer = EdgePlacer(vertices, carries, directed=directed, name=name, workspace=workspace)

    # Several threads read mapped edges, number and check them; they are then taken in order.
    def counted() -> Iterator[tuple[np.ndarray, np.ndarray | None, int]]:
        first = 0
        for chunk, records in chunks:
            yield chunk, records, first
            first += chunk.shape[1]

    def checked(each: tuple[np.ndarray, np.ndarray | None, int]) -> tuple[np.ndarray, np.ndarray | None]:
        chunk, records, first = each
        return sorter.checked(final(chunk) if final else chunk, first), records

    for chunk, records in in_order(checked, counted(), workspace.threads):
        sorter.hold(chunk)
        if placer and records is not None:
            placer.add(chunk, records)
        progress.advance(chunk.shape[1])
    check_memory(vertices, workspace)
    adjacency, counts = sorter.finish(progress)
    if placer is None:
        return adjacency, counts, []
    placed = placer.finish(adjacency, progress)
    return replace(adjacency, data=placed.data), counts, placed.notes()
