"""Files of named arrays with plain values about them: weights and checkpoints. Digests are those of datasets."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.config.plain_values import Schema, an_object, items, parsed, record, text
from leapmpi.dataset.hdf5.digests import check_digest
from leapmpi.dataset.hdf5.reader import map_array, opened
from leapmpi.dataset.hdf5.row_blocks import row_blocks
from leapmpi.dataset.hdf5.writer import new_file, write_array, write_attributes
from leapmpi.errors import DataError

_ABOUT = "about"


def write_named_arrays(
    path: Path, kind: str, group: str, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]
) -> None:
    """Write `arrays` as group/NAME, and `about` (plain values) as JSON. Raises OSError if the disk is full."""
    content = json.dumps({"about": about, "order": list(arrays)}).encode()
    with new_file(path) as file:
        write_array(file, _ABOUT, (len(content),), "u1", [np.frombuffer(content, np.uint8)])
        for name, array in arrays.items():
            # Arrays may be larger than memory.
            write_array(file, f"{group}/{name}", array.shape, array.dtype, row_blocks(np.atleast_1d(array)))
        write_attributes(file, kind, {group: len(arrays)})


def read_named_arrays(
    path: Path,
    kind: str,
    group: str,
    dtypes: Sequence[str],
    schema: Schema = an_object,
    mapped_names: Collection[str] = (),
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the arrays by name, each of one of `dtypes`, and the plain values `about` them, which fit `schema`.

    Those called `mapped_names` stay in the file, read-only. Raises DataError if the file is missing, foreign or
    damaged; allocates no more than the file's size.
    """
    with opened(path, kind) as (file, _):
        content = map_array(file, _ABOUT, ("u1",), file.array(_ABOUT).shape)
        check_digest(path, kind, {_ABOUT: content})
        try:
            header = parsed(bytes(content), record({"about": schema, "order": items(text)}))
        except ValueError as error:
            raise DataError(f"{path} is damaged ({error}); copy or make it again") from None

        # Arrays are mapped in the order in which they were written.
        mapped = {}
        for name in header["order"]:
            key = f"{group}/{name}"
            mapped[key] = map_array(file, key, tuple(dtypes), file.array(key).shape)

        # In a crafted file arrays may share bytes, so that copies of all would not fit into memory.
        if sum(array.nbytes for array in mapped.values()) > path.stat().st_size:
            raise DataError(f"{path}: several arrays share their bytes: the file is damaged; copy or make it again")
    check_digest(path, kind, {key: np.atleast_1d(array) for key, array in mapped.items()})
    found = {key.removeprefix(f"{group}/"): array for key, array in mapped.items()}
    return {name: each if name in mapped_names else np.array(each) for name, each in found.items()}, header["about"]
