"""Edges of a source sorted into an adjacency: as a whole, by an earlier run, or by the tasks of a job array."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from data_prep.edges.edge_placement import EdgePlacer, merge_notes
from data_prep.edges.edge_records import Chunk, EdgeArrays, with_records
from data_prep.edges.edge_shares import read_in_shares, rows_of_share
from data_prep.edges.edge_sort import Adjacency, EdgeCounts, EdgeSorter
from data_prep.edges.edge_stream import CountVertices, Edges, as_stream
from data_prep.edges.seen_edges import SeenEdges
from data_prep.progress import SILENT, Progress
from data_prep.workspace import Workspace, require
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.system.stage_files import Stored
from leapmpi.system.worker_threads import in_order

_BYTES_PER_VERTEX = 20  # held while components, labels and splits are checked; the rest is mapped
_MOST_VERTICES = 1 << 40  # refused before the edges are read rather than after
_COPIED_AT_ONCE = 1 << 22

SORTED = "edges-sorted"
"""Stage after which the adjacency is in temporary files of the workspace."""


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
    it; the adjacency then has it too, and `notes` grow where edges were read several times. carried: if false, none of
    it is kept. Raises DataError naming the first edge with a bad id or a value that is not finite.
    """
    stream = as_stream(edges, arrays if carried else None)
    seen = ids = None
    notes, resumable = notes if notes is not None else [], stream.resumable
    if resumable and (before := sorted_before(workspace)):
        notes += before.notes
        return before.adjacency, before.counts, before.ids
    (stream,) = read_in_shares([stream], workspace, progress)
    known = len(notes)
    chunks, final = stream.chunks, stream.final

    # Where the vertices are not counted yet, read all edges first.
    progress.start(stream.count, "edges read")
    if callable(vertices):
        seen = SeenEdges(stream, workspace)
        seen.read(progress)
        chunks = seen.chunks
        if compact:
            ids, final = seen.numbering()
        vertices = vertices(seen.largest if ids is None else len(ids) - 1, seen.count)
        ids = ids if final else None
    if vertices > _MOST_VERTICES:
        check_memory(vertices, workspace)

    progress.start(stream.count if seen is None else seen.count, "edges taken")
    carries = stream.carries if carried else None
    found = adjacency_of(chunks, vertices, carries, directed, name, workspace, progress, final=final)
    found = replace(found, ids=ids, counted=notes[known:])
    notes[known:] = found.notes
    if resumable:
        found.record(workspace)
    if seen:
        seen.remove()
    return found.adjacency, found.counts, ids


@dataclass(frozen=True)
class SortedEdges:
    """Edges once they are sorted, and what became of them.

    ids: the source's, of vertices that it renumbered. counted: notes of the source when it counted its vertices.
    """

    adjacency: Adjacency
    counts: EdgeCounts
    ids: np.ndarray | None = None
    counted: Sequence[str] = ()

    @property
    def notes(self) -> list[str]:
        """Describe the vertices, and the handling of edges that were read several times."""
        return [*self.counted, *merge_notes(self.adjacency.data, self.counts)]

    def record(self, workspace: Workspace) -> None:
        """Finish the stage, from which a run that is stopped later goes on.

        Raises ShareFinished in a task, which has sorted its rows.
        """
        data = self.adjacency.data
        arrays = {"indptr": self.adjacency.indptr, "indices": self.adjacency.indices, **data.arrays()}
        arrays |= {} if self.ids is None else {"ids": self.ids}
        values = {"counts": asdict(self.counts), "relations": data.relations, "counted": list(self.counted)}
        if workspace.task:
            workspace.finish_share(SORTED, values, arrays, last=True)
        workspace.finish(SORTED, values, arrays)


def sorted_before(workspace: Workspace) -> SortedEdges | None:
    """Return the edges that an earlier run or all tasks have sorted; None where they have not.

    Raises ShareFinished in a task whose share of them is there.
    """
    if shares := workspace.shares:
        if shares.task:
            shares.begin(SORTED, last=True)
            return None
        if found := shares.load(SORTED):
            return _joined(found, workspace)
    stored = workspace.finished(SORTED)
    return None if stored is None else _of_stored(stored)


def _of_stored(stored: Stored) -> SortedEdges:
    values, arrays = stored
    indptr, indices, ids = arrays.pop("indptr"), arrays.pop("indices"), arrays.pop("ids", None)
    data = EdgeData(relations=values["relations"]).with_arrays(arrays)
    return SortedEdges(Adjacency(indptr, indices, data), EdgeCounts(**values["counts"]), ids, values["counted"])


def _joined(shares: list[Stored], workspace: Workspace) -> SortedEdges:
    """Join the shares of all tasks, in the order of their rows."""
    parts = [_of_stored(each) for each in shares]
    indptr = workspace.array("indptr", (sum(each.adjacency.vertices for each in parts) + 1,), np.int64)
    row = edge = 0
    for each in parts:
        rows = each.adjacency.vertices
        indptr[row + 1 : row + rows + 1] = each.adjacency.indptr[1:] + edge
        row, edge = row + rows, edge + len(each.adjacency.indices)
    indices = _one_after_another("indices", [each.adjacency.indices for each in parts], workspace)
    carried = [each.adjacency.data.arrays() for each in parts]
    arrays = {name: _one_after_another(name, [arrays[name] for arrays in carried], workspace) for name in carried[0]}
    data = parts[0].adjacency.data.with_arrays(arrays)
    counts = _sum([each.counts for each in parts])
    return SortedEdges(Adjacency(indptr, indices, data), counts, parts[0].ids, parts[0].counted)


def _one_after_another(name: str, arrays: list[np.ndarray], workspace: Workspace) -> np.ndarray:
    """Return `arrays` as one, mapped from a temporary file."""
    path, rows = workspace.path(name), sum(map(len, arrays))
    with workspace.written(path) as file:
        for array in arrays:
            for start in range(0, len(array), _COPIED_AT_ONCE):
                file.write(np.ascontiguousarray(array[start : start + _COPIED_AT_ONCE]).data)
    return workspace.map(path, arrays[0].dtype, (rows, *arrays[0].shape[1:]))


def _sum(counts: list[EdgeCounts]) -> EdgeCounts:
    """Return the counts of all rows. Each share has read all edges, and kept those of its own rows."""
    first = counts[0]
    distinct = sum(each.read - each.loops - each.duplicates for each in counts)
    return EdgeCounts(
        first.read,
        first.loops,
        first.read - first.loops - distinct,
        *(sum(getattr(each, name) for each in counts) for name in ("reverse_added", "written", "merged", "differing")),
    )


def adjacency_of(
    chunks: Callable[[], Iterator[Chunk]],
    vertices: int,
    carries: np.dtype | None,
    directed: bool,
    name: str,
    workspace: Workspace,
    progress: Progress,
    columns: int | None = None,
    reverse_from: int | None = None,
    final: Callable[[np.ndarray], np.ndarray] | None = None,
) -> SortedEdges:
    """Sort `chunks` of vertex numbers [2, k] with records of type `carries` [k]; other arguments are those of a sorter.

    reverse_from: as in an EdgePlacer. final: maps ids to vertex numbers, where they are not. A task sorts the rows of
    its share.
    """
    sorter = EdgeSorter(vertices, directed=directed, name=name, workspace=workspace, columns=columns)

    # Several threads read mapped edges, number and check them; they are then taken in order.
    def counted() -> Iterator[tuple[np.ndarray, np.ndarray | None, int]]:
        first = 0
        for chunk, records in with_records(chunks()):
            yield chunk, records, first
            first += chunk.shape[1]

    def checked(each: tuple[np.ndarray, np.ndarray | None, int]) -> tuple[np.ndarray, np.ndarray | None]:
        chunk, records, first = each
        return sorter.checked(final(chunk) if final else chunk, first), records

    def numbered() -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        return in_order(checked, counted(), workspace.threads)

    rows = 0, vertices
    if workspace.task:
        rows = rows_of_share(workspace.task, (chunk for chunk, _ in numbered()), vertices, directed)
        sorter.keep(rows)
    placer = None
    if carries is not None:
        placer = EdgePlacer(rows, carries, directed=directed, name=name, workspace=workspace, reverse_from=reverse_from)
    for chunk, records in numbered():
        sorter.hold(chunk)
        if placer and records is not None:
            placer.add(chunk, records)
        progress.advance(chunk.shape[1])
    check_memory(vertices, workspace)
    adjacency, counts = sorter.finish(progress)
    if placer is None:
        return SortedEdges(adjacency, counts)
    placed = placer.finish(adjacency, progress)
    counts = replace(counts, merged=placed.merged, differing=placed.differing)
    return SortedEdges(replace(adjacency, data=placed.data), counts)
