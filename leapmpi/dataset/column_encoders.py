"""Encoders of the columns of tables, and keys of their rows: files beside a graph file or in a dataset.

The former are JSON. The latter are an .npz file: uint64[rows, 2] for each table that the target names, and
`TABLE/there`, bool[rows]. By both, new rows of the target are encoded and find what they name. The attributes
`column_encoders` and `column_encoders_digest`, `row_keys` and `row_keys_digest` name the file and the BLAKE2b of its
bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.names_of_vertices import digest_of
from leapmpi.errors import DataError

FILE = "column_encoders"
OF_DATASET = "column-encoders.json"
"""Name of the file in a dataset."""

CLASSES = "classes"
"""The entry of the encoders with the names of the classes, or null."""

KEYS = "row_keys"
KEYS_OF_DATASET = "row-keys.npz"
THERE = "/there"
"""Ends the name of the mask of rows with a key."""

_WHAT = {FILE: "the encoders of the columns", KEYS: "the keys of the rows"}


def beside_path(path: Path, attributes: Attributes, kind: str = FILE, what: str = "") -> Path | None:
    """Return the file of `kind` (FILE, KEYS, or one that messages call `what`) of the graph file or dataset.h5 `path`.

    None without. attributes: those of `path`. Raises DataError when it is missing, or not the one that was written with
    the graph.
    """
    if kind not in attributes:
        return None
    what, file = what or _WHAT[kind], path.with_name(Path(str(attributes[kind])).name)
    if not file.is_file():
        raise DataError(f"{file}, {what} of {path}, is missing; keep the two files together")
    if digest_of(file) != attributes.get(f"{kind}_digest"):
        raise DataError(f"{file} does not hold {what} of {path}: their digests differ")
    return file


def read_encoders(path: Path, attributes: Attributes) -> dict[str, Any]:
    """Read the encoders of the graph file or dataset.h5 `path`. Raises DataError where it has none."""
    file = beside_path(path, attributes)
    if file is None:
        raise DataError(f"{path} was not imported from tables, and has no encoders of columns")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is no JSON ({error})") from None
    return found


def read_keys(path: Path, attributes: Attributes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Read the keys of the graph file or dataset.h5 `path` by table: uint64[rows, 2], and bool[rows], where one is.

    Raises DataError where it has none.
    """
    file = beside_path(path, attributes, KEYS)
    if file is None:
        raise DataError(f"{path} holds no keys of rows; import the tables again with this version")
    with np.load(file, allow_pickle=False) as found:
        names = [name for name in found.files if not name.endswith(THERE)]
        return {name: (found[name], found[name + THERE]) for name in names}
