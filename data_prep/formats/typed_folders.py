"""Conventions that typed sources share: names of relations in folders and keys, and numbers of vertices by type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from data_prep.edges.edge_records import EdgeArrays, with_records
from data_prep.edges.edge_stream import EdgeStream, as_stream
from data_prep.edges.raw_graph import checked_pairs
from data_prep.edges.typed_graph import RawRelation
from data_prep.formats.array_files import read_array
from leapmpi.errors import DataError


def relation_of(name: str, separator: str, types: Iterable[str] | None = None) -> tuple[str, str, str] | None:
    """Return source type, relation and destination type named by `name`, as in paper__cites__paper; else None.

    types: known types, for names that hold the separator more than twice.
    """
    pieces = name.split(separator)
    if len(pieces) == 3 and all(pieces):
        return pieces[0], pieces[1], pieces[2]
    for source in types or ():
        for destination in types or ():
            begin, end = source + separator, separator + destination
            if name.startswith(begin) and name.endswith(end) and len(name) > len(begin) + len(end):
                return source, name[len(begin) : -len(end)], destination
    return None


def read_relation(
    folder: Path, separator: str, types: Iterable[str], *, rows: bool, arrays: EdgeArrays | None = None
) -> RawRelation:
    """Read edge_index.npy in `folder`, which is called SOURCE, RELATION, DESTINATION with `separator` between them.

    Edges are mapped: [k, 2] if they are `rows`, else [2, k]. types, arrays: as in `relation_of` and RawRelation. Raises
    DataError for another name, and for a damaged array.
    """
    named = relation_of(folder.name, separator, types)
    if named is None:
        raise DataError(f"{folder}: expected SOURCE{separator}RELATION{separator}DESTINATION as its name")
    file = folder / "edge_index.npy"
    return RawRelation(*named, checked_pairs(read_array(file), str(file), rows=rows), str(file), arrays)


def counted(
    stated: Mapping[str, int], rows: Mapping[str, Mapping[str, int]], relations: list[RawRelation], where: str
) -> dict[str, int]:
    """Return the number of vertices of each type: stated, by arrays with a row per vertex, or by the largest id.

    stated: by type, where the source says it. rows: by type, rows of each of its arrays, by name. Raises DataError
    where two of them differ.
    """
    types = dict.fromkeys([*stated, *rows, *(name for each in relations for name in (each.source, each.destination))])
    found: dict[str, int] = {}
    for name in types:
        held = {f"{where}, type {name}": stated[name]} if name in stated else {}
        held |= rows.get(name, {})
        if len(set(held.values())) > 1:
            first, a = next(iter(held.items()))
            second, b = next((other, count) for other, count in held.items() if count != a)
            raise DataError(f"type {name}: {first} has {a:,} vertices, but {second} has {b:,}")
        found[name] = next(iter(held.values())) if held else -1
    # Ids of edges come last, as finding the largest takes a pass over all of them.
    missing = [name for name, count in found.items() if count < 0]
    for relation in relations:
        ends = [place for place, name in ((0, relation.source), (1, relation.destination)) if name in missing]
        for end in ends:
            name = (relation.source, relation.destination)[end]
            found[name] = max(found[name], _largest(as_stream(relation.edges), end) + 1)
    return found


def _largest(edges: EdgeStream, end: int) -> int:
    chunks = (chunk for chunk, _ in with_records(edges.chunks()))
    return max((int(chunk[end].max()) for chunk in chunks if chunk.shape[1]), default=-1)


def mark_reverse_names(relations: list[RawRelation]) -> None:
    """Mark the relations that their names call reverses of others: rev_NAME, NAME_rev, NAME-rev or rev-NAME."""
    for r, each in enumerate(relations):
        names = {f"rev_{each.name}", f"{each.name}_rev", f"{each.name}-rev", f"rev-{each.name}"}
        for other in relations:
            if other.name in names and (other.source, other.destination) == (each.destination, each.source):
                other.reverse_of = r


def mark_reverses(relations: list[RawRelation]) -> None:
    """Mark each relation whose edges are exactly those of an earlier one, the other way, as its reverse."""
    for r, each in enumerate(relations):
        for other, earlier in enumerate(relations[:r]):
            swapped = (earlier.destination, earlier.source) == (each.source, each.destination)
            taken = earlier.reverse_of is not None or any(one.reverse_of == other for one in relations[:r])
            if swapped and not taken and each.reverse_of is None and _are_reverses(each, earlier):
                each.reverse_of = other


def _are_reverses(a: RawRelation, b: RawRelation) -> bool:
    """Return whether the edges of `a` are those of `b` the other way, in the same order."""
    if not isinstance(a.edges, np.ndarray) or not isinstance(b.edges, np.ndarray):
        return False
    return a.edges.shape[1] > 0 and a.edges.shape == b.edges.shape and np.array_equal(a.edges, b.edges[::-1])
