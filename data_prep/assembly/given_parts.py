"""A cut that exists already: the part of each vertex, from a file, or from beside the graph file where import put it.

A source that is cut into parts hands their numbers over in `RawGraph.parts`. `graph.h5` then has `graph.parts.npy`, a
number for each row of the source, and names it and the BLAKE2b of its bytes in its attributes, as with names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from data_prep.formats.array_files import read_array
from data_prep.formats.numeric_text import read_numbers
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5.names import DIGEST_BYTES
from leapmpi.errors import DataError
from leapmpi.system.atomic_files import remove_abandoned, written_aside

FILE, DIGEST = "given_parts", "given_parts_digest"


def parts_path(graph: Path) -> Path:
    """Return the path of the file of parts that belongs to the graph file `graph`."""
    return graph.with_name(f"{graph.stem}.parts.npy")


@contextmanager
def parts_written(path: Path, parts: np.ndarray, graph: Graph, *, overwrite: bool) -> Iterator[None]:
    """Write `parts` (integers[rows of the source]) for the graph file `path`, and keep them if the body succeeds.

    They are noted in `graph.attributes`. Raises DataError when the file exists and `overwrite` is false.
    """
    target = parts_path(path)
    remove_abandoned(target)
    with written_aside(target, overwrite=overwrite) as aside:
        with aside.open("wb") as file:
            np.lib.format.write_array(file, np.ascontiguousarray(parts, np.int32), allow_pickle=False)
        graph.attributes |= {FILE: target.name, DIGEST: _digest(aside)}
        yield


def parts_beside(path: Path, graph: Graph) -> np.ndarray:
    """Open the parts that were imported with `graph` from the file `path`: int32[rows of the source].

    Raises DataError where there are none, or their file is missing or another one.
    """
    if FILE not in graph.attributes:
        raise DataError(f"{path} came without parts; name a file with the part of each vertex: --parts-from FILE")
    file = path.with_name(str(graph.attributes[FILE]))
    if not file.is_file():
        raise DataError(f"{file}, the parts of the vertices of {path}, is missing; keep the two files together")
    if _digest(file) != graph.attributes.get(DIGEST):
        raise DataError(f"{file} does not hold the parts of the vertices of {path}: their digests differ")
    return read_parts(file)


def read_parts(path: Path) -> np.ndarray:
    """Read whole numbers [k], the part of each row of the source: an .npy file, or a text with one on each line.

    The text is what METIS, KaHIP and others write (graph.part.4). Raises DataError for anything else.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist; give a file with the part of each vertex")
    found = read_array(path) if path.suffix == ".npy" else read_numbers(path, np.int64)
    found = found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found
    if found.ndim != 1 or found.dtype.kind not in "iu" or not len(found):
        raise DataError(
            f"{path} holds {found.dtype} of shape {list(found.shape)}; expected one whole number for each vertex, "
            "its part, counted from 0"
        )
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        state = hashlib.blake2b(digest_size=DIGEST_BYTES)
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()
