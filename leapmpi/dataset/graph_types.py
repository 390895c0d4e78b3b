"""Types of a heterogeneous graph: its types of vertices, its relations, and where the vertices of a type are.

The original ids of a type are one range: the base of the type plus the number within it. The vertices of a graph or a
part are sorted by type, and so are the in-neighbours of a vertex by relation. A plain graph has no types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from leapmpi.config.plain_values import count, items, maybe, parsed, record, text
from leapmpi.dataset.content_hash import bytes_lanes
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.hdf5.opened_file import OpenedFile
from leapmpi.dataset.hdf5.reader import map_array, required
from leapmpi.errors import DataError, counted

MOST_TYPES = 1 << 8
MOST_RELATIONS = 1 << 16
"""Numbers of relations take one or two bytes per edge."""

MOST_VERTICES = 1 << 47
"""Relation and original id of a vertex make one word of a draw's key (sampling/relation_lists.py)."""


@dataclass(frozen=True)
class VertexType:
    """A type of vertices: its name, how many vertices the source has of it, and their features.

    feature_dim: columns of a feature row, 0 without features; feature_dtype: one of names.FEATURE_DTYPES, or None.
    """

    name: str
    vertices: int
    feature_dim: int = 0
    feature_dtype: str | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise DataError("a type of vertices has no name")
        known = self.feature_dtype is None or self.feature_dtype in names.FEATURE_DTYPES
        if not known or (self.feature_dim == 0) != (self.feature_dtype is None):
            raise DataError(f"type {self.name} has {counted(self.feature_dim, 'feature')} of type {self.feature_dtype}")


@dataclass(frozen=True)
class Relation:
    """A kind of edges, from vertices of the type `source` to those of the type `destination`.

    reverse_of: number of the relation of the same edges in the other direction, for relations added to a source; None
    for those of the source itself.
    """

    source: str
    name: str
    destination: str
    reverse_of: int | None = None

    def __str__(self) -> str:
        return f"{self.source}:{self.name}:{self.destination}"


@dataclass(frozen=True)
class GraphTypes:
    """The schema of a typed graph: types of vertices and relations by number, and the type with labels and splits.

    Raises DataError if a name is missing or stands twice, or a relation names an unknown type.
    """

    vertices: tuple[VertexType, ...]
    relations: tuple[Relation, ...]
    target: str | None = None
    any_root: bool = False
    """Whether vertices of all types are roots, as in tasks on edges."""

    def __post_init__(self) -> None:
        known = [each.name for each in self.vertices]
        if (vertices := sum(each.vertices for each in self.vertices)) > MOST_VERTICES:
            raise DataError(
                f"the schema has {counted(vertices, 'vertex')}; a typed graph has at most {MOST_VERTICES:,}"
            )
        if not 1 <= len(known) <= MOST_TYPES or not 1 <= len(self.relations) <= MOST_RELATIONS:
            raise DataError(
                f"the schema has {counted(len(known), 'type')} of vertices and "
                f"{counted(len(self.relations), 'relation')}; a typed graph "
                f"has 1 to {MOST_TYPES:,} and 1 to {MOST_RELATIONS:,}"
            )
        for noun, each in (("type of vertices", known), ("relation", [str(each) for each in self.relations])):
            if len(set(each)) < len(each):
                repeated = next(name for name in each if each.count(name) > 1)
                raise DataError(f"the schema names the {noun} {repeated!r} twice")
        for relation in self.relations:
            if missing := {relation.source, relation.destination} - set(known):
                raise DataError(f"relation {relation} names the type {min(missing)!r}, which no vertices have")
            self._check_reverse(relation)
        if self.target is not None and self.target not in known:
            raise DataError(f"the target type {self.target!r} is not a type of vertices ({', '.join(known)})")

    def _check_reverse(self, relation: Relation) -> None:
        """Raise DataError if `relation` is marked as the reverse of one that it cannot be."""
        if relation.reverse_of is None:
            return
        other = self.relations[relation.reverse_of] if relation.reverse_of < len(self.relations) else None
        if other is None or (other.source, other.destination) != (relation.destination, relation.source):
            raise DataError(f"relation {relation} is marked as the reverse of {other or relation.reverse_of}")

    @cached_property
    def bases(self) -> np.ndarray:
        """Return int64[T + 1]: type t has the original ids bases[t] to bases[t + 1] (exclusive)."""
        return np.concatenate([[0], np.cumsum([each.vertices for each in self.vertices], dtype=np.int64)])

    @cached_property
    def ends(self) -> np.ndarray:
        """Return int64[R, 2]: the numbers of the types of source and destination of each relation."""
        number = {each.name: t for t, each in enumerate(self.vertices)}
        return np.array([[number[each.source], number[each.destination]] for each in self.relations], np.int64)

    @cached_property
    def reverses(self) -> np.ndarray:
        """Return int64[R]: the number of the relation of the same edges in the other direction, or -1."""
        found = np.full(len(self.relations), -1, np.int64)
        for r, each in enumerate(self.relations):
            if each.reverse_of is not None:
                found[r], found[each.reverse_of] = each.reverse_of, r
        return found

    @cached_property
    def relation_numbers(self) -> dict[str, int]:
        """Numbers of the relations by SOURCE:NAME:DESTINATION, and by NAME where one relation alone has it."""
        short = [each.name for each in self.relations]
        alone = {name: r for r, name in enumerate(short) if short.count(name) == 1}
        return alone | {str(each): r for r, each in enumerate(self.relations)}

    @property
    def target_number(self) -> int | None:
        """Number of the target type; None without one, or where vertices of all types are roots."""
        if self.target is None or self.any_root:
            return None
        return [each.name for each in self.vertices].index(self.target)

    def of_original(self, ids: np.ndarray) -> np.ndarray:
        """Return the number of the type of each of the original `ids` (int64[n]): uint8[n]."""
        return np.searchsorted(self.bases[1:], ids, "right").astype(np.uint8)

    def attributes(self) -> Attributes:
        """Return the root attributes of a file with this schema."""
        return {names.VERTEX_TYPES: len(self.vertices), names.RELATIONS: len(self.relations)}

    def as_bytes(self) -> np.ndarray:
        """Return the schema as it is stored: uint8[k], JSON in UTF-8."""
        content = {
            "vertex_types": [vars(each) for each in self.vertices],
            "relations": [vars(each) for each in self.relations],
            "target": self.target,
        }
        return np.frombuffer(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"), np.uint8)

    def lanes(self) -> np.ndarray:
        """Return the contribution of the schema to the lanes of a graph's content: uint64[2]."""
        return bytes_lanes(self.as_bytes())

    def describe(self, offsets: np.ndarray, edges: np.ndarray) -> dict[str, list[dict]]:
        """Return the types and relations as plain values, for people and `--json`.

        offsets: int64[P, T + 1], the first vertex of each type in each part; edges: int64[R], edges of each relation.
        """
        counts = np.diff(offsets, axis=1).sum(axis=0).tolist()
        types = [
            {**vars(each), "vertices": counts[t], "target": each.name == self.target}
            for t, each in enumerate(self.vertices)
        ]
        relations = [
            {
                "relation": str(each),
                "source": each.source,
                "destination": each.destination,
                "edges": int(edges[r]),
                "reverse_of": "" if each.reverse_of is None else str(self.relations[each.reverse_of]),
            }
            for r, each in enumerate(self.relations)
        ]
        return {names.VERTEX_TYPE_LIST: types, names.RELATION_LIST: relations}


class Reached(NamedTuple):
    """Part of a schema that vertices of some types reach within a number of hops."""

    relations: np.ndarray
    """bool[hops, R]: whether hop h draws from a relation; hop 0 feeds the last layer."""
    types: np.ndarray
    """bool[hops + 1, T]: types of the destinations of hop h, and, last, of all sources: those that need inputs."""


def reached(types: GraphTypes, targets: Iterable[int], hops: int, kept: np.ndarray | None = None) -> Reached:
    """Return the part of the schema reached by roots of the types with the numbers `targets`. Pure.

    A destination of a hop is one of all later hops too, as its layers need its own values. kept: bool[hops, R], False
    for relations that a hop leaves out; None leaves out none.
    """
    sources, destinations = types.ends.T
    drawn = np.zeros((hops, len(types.relations)), bool)
    found = np.zeros((hops + 1, len(types.vertices)), bool)
    found[0, list(targets)] = True
    for hop in range(hops):
        drawn[hop] = found[hop, destinations] if kept is None else found[hop, destinations] & kept[hop]
        found[hop + 1] = found[hop]
        found[hop + 1, sources[drawn[hop]]] = True
    return Reached(drawn, found)


_SCHEMA = record(
    {
        "vertex_types": items(
            record({"name": text, "vertices": count, "feature_dim": count, "feature_dtype": maybe(text)}), 1, MOST_TYPES
        ),
        "relations": items(
            record({"source": text, "name": text, "destination": text, "reverse_of": maybe(count)}), 1, MOST_RELATIONS
        ),
        "target": maybe(text),
    }
)


def map_types(file: OpenedFile, path: Path, found: Attributes) -> GraphTypes | None:
    """Read the schema of `file`; None for a plain graph. `found` are its root attributes. Raises DataError."""
    if names.VERTEX_TYPES not in found:
        return None
    stored = map_array(file, names.SCHEMA, ("|u1",), file.array(names.SCHEMA).shape)
    try:
        content = parsed(stored.tobytes(), _SCHEMA)
        types = GraphTypes(
            tuple(VertexType(**each) for each in content["vertex_types"]),
            tuple(Relation(**each) for each in content["relations"]),
            content["target"],
        )
    except (ValueError, TypeError, DataError) as error:
        raise DataError(f"{path}: {names.SCHEMA} is damaged ({error}); make the file again") from None
    # One schema has one spelling, so that content hashes of equal graphs are equal.
    if not np.array_equal(types.as_bytes(), stored):
        raise DataError(f"{path}: {names.SCHEMA} is not written as FORMAT.md says; make the file again")
    sizes = tuple(required(found, name, int, path) for name in (names.VERTEX_TYPES, names.RELATIONS))
    if sizes != (len(types.vertices), len(types.relations)):
        raise DataError(
            f"{path}: {names.SCHEMA} does not list {counted(sizes[0], 'type')} and {counted(sizes[1], 'relation')}; "
            "make it again"
        )
    return types


def relation_dtype(relations: int) -> str:
    """Return the dtype of the array `relation` of a graph of so many relations."""
    return "|u1" if relations <= 1 << 8 else "<u2"
