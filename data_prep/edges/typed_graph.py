"""TypedRawGraph: a typed graph as read from a source, before any cleaning.

Ids of vertices are numbers within their type. It takes the place of a RawGraph, and nothing in it is trusted yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from data_prep.edges.edge_records import Chunk, EdgeArrays, with_records
from data_prep.edges.edge_shares import read_in_shares
from data_prep.edges.edge_sort import check_ids
from data_prep.edges.edge_stream import Edges, EdgeStream, as_stream
from data_prep.edges.raw_graph import SparseRows
from data_prep.progress import Progress
from data_prep.workspace import Workspace
from leapmpi.dataset.graph_types import Relation
from leapmpi.errors import DataError

REVERSE = "rev_"
"""Begins the names of relations that --add-reverse adds, as in torch_geometric."""


@dataclass
class RawVertices:
    """The vertices of one type as read.

    count: their number. features: [count, F] array, which may be mapped, SparseRows, or None. labels: [count] or
    [count, C] array or None; -1 or NaN is unlabelled. splits: any of "train", "val", "test" -> ids or bool[count], or
    None. classes: number of classes if the source states it. times: numbers [count] or None. names: the source's name
    of each vertex, where that is not its number, or None. class_names: the source's name of each class, or None.
    """

    count: int
    features: np.ndarray | SparseRows | None = None
    labels: np.ndarray | None = None
    splits: dict[str, np.ndarray] | None = None
    classes: int | None = None
    times: np.ndarray | None = None
    names: Sequence[str] | np.ndarray | None = None
    class_names: list[str] | None = None


@dataclass
class RawRelation:
    """The edges of one relation as read: integers [2, E], sources over destinations, or a stream of such.

    where: name of the edges in messages. arrays: edge data in their order, unless the stream itself brings it.
    reverse_of: number of the relation with the same edges in the other direction, where the source marks it.
    """

    source: str
    name: str
    destination: str
    edges: Edges
    where: str = "edges"
    arrays: EdgeArrays | None = None
    reverse_of: int | None = None

    def __str__(self) -> str:
        return f"{self.source}:{self.name}:{self.destination}"


@dataclass(frozen=True)
class GivenTriples:
    """Validation and test edges of a typed source: int64[k, 3], source, relation and destination, within their types.

    origin: where they come from, for the table.
    """

    val: np.ndarray
    test: np.ndarray
    origin: str


class RowKeys(NamedTuple):
    """Keys of the rows of a table: words uint64[rows, 2], and bool[rows], where a row has one."""

    words: np.ndarray
    there: np.ndarray


@dataclass
class TypedRawGraph:
    """A typed graph as read.

    vertices: by name of the type, in the order of the types' numbers. relations: in that of relations. target: the type
    with labels and splits, or None. files, notes, split_origin: as in a RawGraph.
    """

    vertices: dict[str, RawVertices]
    relations: list[RawRelation]
    target: str | None = None
    split_origin: str = "source"
    notes: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    edge_splits: GivenTriples | None = None
    parts: np.ndarray | None = None
    """The part of each vertex, by type, of a source that is cut into parts."""
    encoders: dict[str, Any] | None = None
    """Encoders that made features of the columns of tables, as JSON holds them."""
    times_of_sources: bool = False
    """Whether the time of each edge is that of its source, so that no stream carries it."""
    keys: dict[str, RowKeys] | None = None
    """Keys of the tables that the target names."""

    @property
    def names(self) -> Sequence[str] | None:
        """Names of all vertices by type; None where no type has names."""
        named = any(each.names is not None for each in self.vertices.values())
        return TypedNames(list(self.vertices.values())) if named else None

    def labelled_types(self) -> list[str]:
        """List the types that have labels or splits."""
        return [name for name, each in self.vertices.items() if each.labels is not None or each.splits]


class TypedNames(Sequence[str]):
    """Names of the vertices of all types, one type after the other; numbers where a type has no names."""

    def __init__(self, vertices: list[RawVertices]) -> None:
        self._names = [range(each.count) if each.names is None else each.names for each in vertices]
        self._ends = np.cumsum([len(each) for each in self._names]).tolist()

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, place):
        if not isinstance(place, slice):
            return self[place : place + 1][0]
        start, stop, _ = place.indices(len(self))
        found: list[str] = []
        for names, end in zip(self._names, self._ends, strict=True):
            first = end - len(names)
            if start < end and stop > first:
                found.extend(map(str, names[max(0, start - first) : stop - first]))
        return found


class TypedEdges:
    """All edges of a typed source as one stream of keys: relation x n + source, over destination.

    n: number of all vertices; ends are numbers over all types. reverse: whether relations without a reverse get one.
    carried: whether edge data is kept, of the kinds that all relations have.
    """

    def __init__(self, raw: TypedRawGraph, *, reverse: bool, carried: bool) -> None:
        counts = [each.count for each in raw.vertices.values()]
        self._bases = dict(zip(raw.vertices, np.cumsum([0, *counts]).tolist(), strict=False))
        self._counts = dict(zip(raw.vertices, counts, strict=True))
        self._relations = raw.relations
        # Types must be known before a relation can be numbered.
        for each in raw.relations:
            if missing := {each.source, each.destination} - set(raw.vertices):
                raise DataError(
                    f"{each.where}: relation {each} names the type {min(missing)!r}, which no vertices have"
                )
        self.vertices = sum(counts)
        self.relations = [Relation(each.source, each.name, each.destination, each.reverse_of) for each in raw.relations]
        self._reverse = self._added(reverse)
        self.read = self.loops = 0
        """Edges read, and self-loops among them."""
        self._streams = [as_stream(each.edges, each.arrays if carried else None) for each in raw.relations]
        self.carries = self._common(raw.notes) if carried else None

    @property
    def count(self) -> int | None:
        """Number of edges of the source, where it is known beforehand."""
        counts = [each.count for each in self._streams]
        return None if None in counts else sum(each or 0 for each in counts)

    @property
    def resumable(self) -> bool:
        """Whether a later run need not read the edges again: they alone are learned from the source."""
        return all(each.resumable for each in self._streams)

    def read_in_shares(self, workspace: Workspace, progress: Progress) -> None:
        """Read a share of the edges in a task, or go on with those that all tasks have read; see `edge_shares`."""
        self._streams = read_in_shares(self._streams, workspace, progress)

    def _added(self, reverse: bool) -> dict[int, int]:
        """Add a relation for each that has no reverse; return their numbers by those of their originals."""
        marked = {each.reverse_of for each in self.relations}
        alone = [r for r, each in enumerate(self.relations) if each.reverse_of is None and r not in marked]
        found: dict[int, int] = {}
        for r in alone if reverse else ():
            each = self.relations[r]
            found[r] = len(self.relations)
            self.relations.append(Relation(each.destination, f"{REVERSE}{each.name}", each.source, r))
        return found

    def _common(self, notes: list[str]) -> np.dtype | None:
        """Return the type of the data that edges of all relations carry; note what is left out."""
        kinds = [each.carries for each in self._streams]
        fields = [{} if kind is None else {name: kind[name] for name in kind.names or ()} for kind in kinds]
        every = {name for each in fields for name in each}
        shared = [
            name
            for name in ("weight", "features", "time")
            if all(name in each for each in fields) and len({each[name].shape for each in fields}) == 1
        ]
        if left := sorted(every - set(shared)):
            notes.append(f"not used of edge data, as not all relations have it alike: {', '.join(left)}")
        if not shared:
            return None
        types = {name: np.result_type(*(each[name].base for each in fields)) for name in shared}
        return np.dtype([(name, types[name], fields[0][name].shape) for name in shared])

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Yield keys int64[2, k] with their records or None. Raises DataError for the first id outside its type."""
        self.read = self.loops = 0
        for r, (relation, stream) in enumerate(zip(self._relations, self._streams, strict=True)):
            first = 0
            for chunk, records in with_records(_of_one_type(stream)):
                self._check(chunk, relation, first)
                first += chunk.shape[1]
                ends = chunk + np.array([[self._bases[relation.source]], [self._bases[relation.destination]]])
                self.read += ends.shape[1]
                # Only edges within a type may be loops.
                kept = np.ones(ends.shape[1], bool)
                if relation.source == relation.destination:
                    kept = ends[0] != ends[1]
                    ends = ends[:, kept]
                    self.loops += len(kept) - ends.shape[1]
                records = self._converted(records, kept)
                yield np.stack([r * self.vertices + ends[0], ends[1]]), records
                if r in self._reverse:
                    yield np.stack([self._reverse[r] * self.vertices + ends[1], ends[0]]), records

    def numbers_of(self, triples: np.ndarray, where: str) -> np.ndarray:
        """Return `triples` int64[k, 3] of source, relation and destination, ends numbered over all types.

        Raises DataError for an end that its type does not have.
        """
        found = np.array(triples, np.int64).reshape(-1, 3)
        for r, relation in enumerate(self._relations):
            rows = np.flatnonzero(found[:, 1] == r)
            self._check(found[rows][:, [0, 2]].T, replace(relation, where=where), 0)
            found[rows, 0] += self._bases[relation.source]
            found[rows, 2] += self._bases[relation.destination]
        return found

    def _check(self, chunk: np.ndarray, relation: RawRelation, first: int) -> None:
        """Raise DataError for the first end of `chunk` that its type does not have; edge 0 is edge `first`."""
        if chunk.dtype.kind not in "iu":
            raise DataError(f"{relation.where} must hold whole numbers, but their type is {chunk.dtype}")
        ends = relation.source, relation.destination
        limits = [self._counts[name] for name in ends]
        check_ids(chunk, limits, f"{relation.where}, relation {relation}", first, [f"type {name}" for name in ends])

    def _converted(self, records: np.ndarray | None, kept: np.ndarray) -> np.ndarray | None:
        """Return the records of the edges `kept` bool[k] with the fields that all relations have."""
        if records is None or self.carries is None:
            return None
        found = np.empty(int(kept.sum()), self.carries)
        for name in self.carries.names or ():
            found[name] = records[name][kept]
        return found


def _of_one_type(stream: EdgeStream) -> Iterator[Chunk]:
    """Yield the chunks of `stream`, ids as numbers."""
    for chunk, records in with_records(stream.chunks()):
        numbered = stream.final(chunk) if stream.final else chunk
        yield numbered if records is None else (numbered, records)
