"""Pairs and triples of vertices that a user names in a text file, such as edges that are known to be false."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from leapmpi.dataset.graph_types import GraphTypes
from leapmpi.dataset.hdf5.names import DATASET_FILE
from leapmpi.dataset.named_vertices import original_ids, read_fields
from leapmpi.dataset.names_of_vertices import open_names
from leapmpi.dataset.partitioned import Dataset
from leapmpi.errors import DataError, counted


def read_triples(path: Path, dataset: Dataset, flag: str, check: bool = True) -> np.ndarray:
    """Read int64[k, 3] from the text `path`: original id of a source, number of the relation, original id of its end.

    A line has a source and a destination, with the relation between them in a typed graph; fields are separated by
    commas, tabs, semicolons or blanks. Vertices have names of the source, where it has some. A plain graph has
    relation 0. check: whether to read the whole file of names and compare its digest, which one rank does for all.

    Raises DataError with the line for what is none of them, and for a file that cannot be read.
    """
    types, width = dataset.types, 2 if dataset.types is None else 3
    where = f"{flag} {path}"
    rows = read_fields(path, width, where, "a text file of edges")
    for number, fields in rows:
        if len(fields) != width:
            shape = "a source and a destination" if width == 2 else "a source, a relation and a destination"
            raise DataError(f"{where}, line {number}: expected {shape}, found {counted(len(fields), 'field')}")

    names = open_names(dataset.folder / DATASET_FILE, dataset.attributes, check)
    found = np.zeros((len(rows), 3), np.int64)
    if not rows:
        return found
    # Both ends in one look-up, which passes over the names of all vertices.
    found[:, [0, 2]] = original_ids([(number, [fields[0], fields[-1]]) for number, fields in rows], names, where)
    if types is not None:
        found[:, 1] = _relations(rows, types, where)
        wrong = (types.of_original(found[:, [0, 2]]) != types.ends[found[:, 1]]).any(axis=1)
        if wrong.any():
            place = int(np.flatnonzero(wrong)[0])
            number, relation = rows[place][0], types.relations[found[place, 1]]
            raise DataError(f"{where}, line {number}: an end is not of the types of relation {relation}")
    return found


def _relations(rows: list[tuple[int, list[str]]], types: GraphTypes, where: str) -> list[int]:
    """Return the number of the relation of each row: SOURCE:NAME:DESTINATION, or its name where one relation has it."""
    known, found = types.relation_numbers, []
    for number, fields in rows:
        if fields[1] not in known:
            raise DataError(f"{where}, line {number}: the graph has no relation {fields[1][:60]!r}, or several")
        found.append(known[fields[1]])
    return found
