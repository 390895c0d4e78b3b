"""A cut that exists already: the part of each vertex, from a file, or from beside the graph file where import put it.

A source that is cut into parts hands their numbers over in `RawGraph.parts`. `graph.h5` then has `graph.parts.npy`, a
number for each row of the source, and names it and the BLAKE2b of its bytes in its attributes, as with names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.formats.array_files import read_array
from data_prep.formats.numeric_text import read_numbers
from leapmpi.dataset.column_encoders import beside_path
from leapmpi.dataset.graph import Graph
from leapmpi.errors import DataError

FILE = "given_parts"


def parts_beside(path: Path, graph: Graph) -> np.ndarray:
    """Open the parts that were imported with `graph` from the file `path`: int32[rows of the source].

    Raises DataError where there are none, or their file is missing or another one.
    """
    file = beside_path(path, graph.attributes, FILE, "the parts of the vertices")
    if file is None:
        raise DataError(f"{path} came without parts; name a file with the part of each vertex: --parts-from FILE")
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
