"""Pairs and triples of vertices that a user names in a text file, such as edges that are known to be false."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from leapmpi.dataset.graph_types import GraphTypes
from leapmpi.dataset.hdf5.names import DATASET_FILE
from leapmpi.dataset.names_of_vertices import open_names
from leapmpi.dataset.partitioned import Dataset
from leapmpi.errors import DataError

_SEPARATOR = re.compile(r"\t|,|\s+")


def read_triples(path: Path, dataset: Dataset, flag: str) -> np.ndarray:
    """Read int64[k, 3] from the text `path`: original id of a source, number of the relation, original id of its end.

    A line has a source and a destination, with the relation between them in a typed graph; fields are separated by a
    tab, a comma or blanks. Vertices have names of the source, where it has some. A plain graph has relation 0.
    Raises DataError with the line for what is none of them, and for a file that cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{flag} {path}: cannot be read ({reason}); give a text file of edges") from None
    types, width = dataset.types, 2 if dataset.types is None else 3
    rows = [(number, _SEPARATOR.split(line.strip())) for number, line in enumerate(lines, 1) if line.strip()]
    for number, fields in rows:
        if len(fields) != width:
            shape = "a source and a destination" if width == 2 else "a source, a relation and a destination"
            raise DataError(f"{flag} {path}, line {number}: expected {shape}, found {len(fields)} fields")

    found = np.zeros((len(rows), 3), np.int64)
    names = open_names(dataset.folder / DATASET_FILE, dataset.attributes, check=False)
    for column, field in ((0, 0), (2, -1)):
        texts = [fields[field] for _, fields in rows]
        ids = _numbers(texts) if names is None else names.ids_of(texts)
        if len(bad := np.flatnonzero(ids < 0)):
            kind = "an original id, a whole number from 0 on" if names is None else "a name of a vertex"
            raise DataError(f"{flag} {path}, line {rows[bad[0]][0]}: {texts[bad[0]][:60]!r} is not {kind}")
        found[:, column] = ids
    if types is not None:
        found[:, 1] = _relations(rows, types, f"{flag} {path}")
        wrong = (types.of_original(found[:, [0, 2]]) != types.ends[found[:, 1]]).any(axis=1)
        if wrong.any():
            place = int(np.flatnonzero(wrong)[0])
            number, relation = rows[place][0], types.relations[found[place, 1]]
            raise DataError(f"{flag} {path}, line {number}: an end is not of the types of relation {relation}")
    return found


def _relations(rows: list[tuple[int, list[str]]], types: GraphTypes, where: str) -> list[int]:
    """Return the number of the relation of each row: SOURCE:NAME:DESTINATION, or its name where one relation has it."""
    known = {str(each): r for r, each in enumerate(types.relations)}
    short = [each.name for each in types.relations]
    known |= {name: r for r, name in enumerate(short) if short.count(name) == 1}
    found = []
    for number, fields in rows:
        if fields[1] not in known:
            raise DataError(f"{where}, line {number}: the graph has no relation {fields[1][:60]!r}, or several")
        found.append(known[fields[1]])
    return found


def _numbers(texts: list[str]) -> np.ndarray:
    return np.array([int(text) if text.isdecimal() and len(text) < 19 else -1 for text in texts], np.int64)
