"""Triples of texts or numbers (head, relation, tail), numbered, as the edges of a graph with one type of vertices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.assembly.id_map import Ids, Numbering, TextNumbering
from data_prep.edges.typed_graph import RawRelation
from data_prep.workspace import Workspace
from leapmpi.errors import DataError

ENTITY = "entity"
"""Type of the vertices of sources that have triples alone."""


class TripleBatch(NamedTuple):
    """Some triples as read; `place` names the row of one in messages."""

    heads: Sequence[str]
    relations: Sequence[str]
    tails: Sequence[str]
    place: Callable[[int], str]


class Lines:
    """Places of triples in the text file `path`, by their lines."""

    def __init__(self, path: Path, lines: list[int]) -> None:
        self._path, self._lines = path, lines

    def __call__(self, row: int) -> str:
        return f"{self._path}, line {self._lines[row]}"


@dataclass(frozen=True)
class Triples:
    """Numbered triples: by split int64[k, 3] of source, relation and destination.

    names: what the source calls the vertices, None where these are their numbers; relations: names of relations.
    """

    vertices: int
    names: Ids | None
    relations: list[str]
    splits: dict[str, np.ndarray]

    def edges_of(self, split: str, where: str) -> list[RawRelation]:
        """Return the edges of a split by relation, some of them without edges."""
        triples = self.splits[split]
        order = np.argsort(triples[:, 1], kind="stable")
        bounds = np.searchsorted(triples[order, 1], np.arange(len(self.relations) + 1))
        ends = np.ascontiguousarray(triples[order][:, [0, 2]].T)
        return [
            RawRelation(ENTITY, name, ENTITY, ends[:, bounds[r] : bounds[r + 1]], where)
            for r, name in enumerate(self.relations)
        ]


def numbered_triples(
    splits: Mapping[str, Iterable[TripleBatch]],
    workspace: Workspace | None,
    entities: Numbering | None = None,
    relations: Sequence[str] | None = None,
) -> Triples:
    """Number the triples of each split: by the lists of `entities` and `relations`, else in ascending order of texts.

    Raises DataError, naming the row, for a missing name, or one that a list lacks; ResourceError for too many.
    """
    texts = TextNumbering(workspace)
    number_of = {name: r for r, name in enumerate(relations or ())}
    found: dict[str, list[np.ndarray]] = {name: [] for name in splits}
    # Numbers are provisional while files are read; texts alone decide the final ones.
    for name, batches in splits.items():
        for batch in batches:
            if relations is not None and (unknown := next((r for r in batch.relations if r not in number_of), None)):
                row = list(batch.relations).index(unknown)
                raise DataError(f"{batch.place(row)}: relation {unknown!r} is not in the list of relations")
            numbers = [number_of.setdefault(each, len(number_of)) for each in batch.relations]
            numbered = entities.numbers if entities is not None else texts.provisional
            ends = [numbered(side, batch.place) for side in (batch.heads, batch.tails)]
            found[name].append(np.column_stack([ends[0], np.array(numbers, np.int64), ends[1]]))
    split_triples = {name: np.concatenate([np.empty((0, 3), np.int64), *each]) for name, each in found.items()}
    ordered = list(number_of) if relations is not None else sorted(number_of)
    # Names are sorted in the end, so that numbers do not depend on the order of files.
    if relations is None:
        place_of = {name: place for place, name in enumerate(ordered)}
        final = np.array([place_of[name] for name in number_of], np.int64)
        split_triples = {name: _with_relations(each, final) for name, each in split_triples.items()}
    if entities is not None:
        return Triples(len(entities.ids), entities.ids, ordered, split_triples)
    vertices = texts.count
    names = texts.finish()
    for each in split_triples.values():
        each[:, [0, 2]] = texts.final(each[:, [0, 2]])
    return Triples(vertices, names, ordered, split_triples)


def _with_relations(triples: np.ndarray, final: np.ndarray) -> np.ndarray:
    """Replace the numbers of relations in `triples` by those in `final`."""
    triples[:, 1] = final[triples[:, 1]]
    return triples
