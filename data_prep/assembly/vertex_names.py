"""The names that vertices had in the source, in a text file beside the graph file: line k is the name of original id k.

`graph.h5` has `graph.names.txt`. The graph's attributes `vertex_names` and `vertex_names_digest` name the file and the
BLAKE2b of its bytes, so that a file of another graph is noticed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5.names import DIGEST_BYTES
from leapmpi.dataset.names_of_vertices import DIGEST, FILE
from leapmpi.errors import DataError
from leapmpi.system.atomic_files import remove_abandoned, written_aside

_LINES_AT_ONCE = 100_000


def names_path(graph: Path) -> Path:
    """Return the path of the file of names that belongs to the graph file `graph`: g.names.txt of g.h5.

    Any other suffix is part of the name, so that no two graph files share one.
    """
    stem = graph.stem if graph.suffix == ".h5" else graph.name
    return graph.with_name(f"{stem}.names.txt")


@contextmanager
def names_written(path: Path, names: Sequence[str] | np.ndarray, graph: Graph, *, overwrite: bool) -> Iterator[None]:
    """Write `names` for the graph file `path`, note them in `graph.attributes`, and keep them if the body succeeds.

    Raises DataError when the file exists and `overwrite` is false, or a name holds a line break.
    """
    target = names_path(path)
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    remove_abandoned(target)
    with written_aside(target, overwrite=overwrite) as aside:
        with aside.open("wb") as file:
            for start in range(0, len(names), _LINES_AT_ONCE):
                # One name a line, so a name with a line break would shift all after it.
                lines = list(map(str, names[start : start + _LINES_AT_ONCE]))
                text = "\n".join(lines) + "\n"
                if text.count("\n") != len(lines) or "\r" in text:
                    row = next(row for row, name in enumerate(lines) if "\n" in name or "\r" in name)
                    raise DataError(f"the name of vertex {start + row}, {lines[row][:40]!r}, holds a line break")
                block = text.encode("utf-8", "surrogatepass")
                state.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())  # a full disk shows here, before the graph file appears
        graph.attributes |= {FILE: target.name, DIGEST: state.hexdigest()}
        yield
