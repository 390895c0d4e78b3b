"""Files beside a graph file, which appear with it or not at all: graph.names.txt of graph.h5, and others.

The graph's attributes `KIND` and `KIND_digest` name the file of a kind and the BLAKE2b of its bytes, so that a file of
another graph is noticed.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from data_prep.edges.typed_graph import RowKeys
from leapmpi.dataset.column_encoders import THERE
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.names_of_vertices import digest_of
from leapmpi.errors import DataError
from leapmpi.system.atomic_files import remove_abandoned, written_aside

_LINES_AT_ONCE = 100_000


def path_beside(graph: Path, suffix: str) -> Path:
    """Return the path of a file that belongs to the graph file `graph`: g.SUFFIX of g.h5.

    Any other suffix of `graph` is part of the name, so that no two graph files share one.
    """
    return graph.with_name(f"{graph.stem if graph.suffix == '.h5' else graph.name}.{suffix}")


@contextmanager
def written_beside(
    path: Path, suffix: str, kind: str, graph: Graph, write: Callable[[BinaryIO], object], *, overwrite: bool
) -> Iterator[Path]:
    """Write a file of `kind` beside the graph file `path`, note it in `graph.attributes`, keep it if the body succeeds.

    Yields its path. Raises DataError when it exists and `overwrite` is false, and what `write` raises.
    """
    target = path_beside(path, suffix)
    remove_abandoned(target)
    with written_aside(target, overwrite=overwrite) as aside:
        with aside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())  # a full disk shows here, before the graph file appears
        graph.attributes |= {kind: target.name, f"{kind}_digest": digest_of(aside)}
        yield target


def write_names(names: Sequence[str] | np.ndarray, file: BinaryIO) -> None:
    """Write what the source calls the vertices: line k is the name of original id k.

    Raises DataError where a name holds a line break.
    """
    for start in range(0, len(names), _LINES_AT_ONCE):
        # One name a line, so a name with a line break would shift all after it.
        lines = list(map(str, names[start : start + _LINES_AT_ONCE]))
        text = "\n".join(lines) + "\n"
        if text.count("\n") != len(lines) or "\r" in text:
            row = next(row for row, name in enumerate(lines) if "\n" in name or "\r" in name)
            raise DataError(f"the name of vertex {start + row}, {lines[row][:40]!r}, holds a line break")
        file.write(text.encode("utf-8", "surrogatepass"))


def write_parts(parts: np.ndarray, file: BinaryIO) -> None:
    """Write `parts` (integers[rows of the source]), the part of each row, as .npy."""
    np.lib.format.write_array(file, np.ascontiguousarray(parts, np.int32), allow_pickle=False)


def write_encoders(encoders: Mapping[str, Any], file: BinaryIO) -> None:
    """Write encoders of columns as JSON."""
    file.write(json.dumps(encoders, ensure_ascii=False, indent=1, sort_keys=True).encode())


def write_keys(keys: Mapping[str, RowKeys], file: BinaryIO) -> None:
    """Write the keys of rows by table as .npz."""
    arrays = {name: each.words for name, each in keys.items()}
    arrays |= {name + THERE: each.there for name, each in keys.items()}
    # As np.savez does, which takes no array that is called like one of its parameters: "file".
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
