"""Encoders of the columns of tables: a JSON file beside a graph file or in a dataset, by which new tables are encoded.

The attributes `column_encoders` and `column_encoders_digest` name the file and the BLAKE2b of its bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.names_of_vertices import digest_of
from leapmpi.errors import DataError

FILE, DIGEST = "column_encoders", "column_encoders_digest"
OF_DATASET = "column-encoders.json"
"""Name of the file in a dataset."""


def encoders_path(path: Path, attributes: Attributes) -> Path | None:
    """Return the file of the encoders of the graph file or dataset.h5 `path` with these `attributes`; None without.

    Raises DataError when it is missing, or is not the one that was written with the graph.
    """
    if FILE not in attributes:
        return None
    name = str(attributes[FILE])
    file = path.with_name(Path(name).name)
    if not file.is_file():
        raise DataError(f"{file}, the encoders of the columns of {path}, is missing; keep the two files together")
    if digest_of(file) != attributes.get(DIGEST):
        raise DataError(f"{file} does not hold the encoders of the columns of {path}: their digests differ")
    return file


def read_encoders(path: Path, attributes: Attributes) -> dict[str, Any]:
    """Read the encoders of the graph file or dataset.h5 `path`. Raises DataError where it has none."""
    file = encoders_path(path, attributes)
    if file is None:
        raise DataError(f"{path} was not imported from tables, and has no encoders of columns")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is no JSON ({error})") from None
    return found
