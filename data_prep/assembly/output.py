"""The last step of `import` and `synth`: the graph file, written whole or not at all, and the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_prep.assembly.summary import Summary, table
from data_prep.assembly.vertex_names import names_path, names_written
from data_prep.progress import Steps
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.graph_file import write_graph
from leapmpi.errors import DataError


def check_output(path: Path, overwrite: bool) -> None:
    """Raise DataError when `path` cannot become a graph file: before minutes of work, rather than after."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; name the graph file to write, e.g. {path / 'graph.h5'}")
    if path.exists() and not overwrite:
        raise DataError(f"{path} exists already; choose another name, or pass --overwrite to replace it")
    if not path.absolute().parent.is_dir():
        raise DataError(f"{path}: its folder {path.absolute().parent} does not exist; make it first")


def write(
    path: Path,
    graph: Graph,
    summary: Summary,
    source: str,
    *,
    overwrite: bool,
    steps: Steps,
    names: Sequence[str] | np.ndarray | None = None,
) -> None:
    """Write `graph` to `path`, `names` of its vertices beside it, and print the table under a line naming `source`.

    Raises DataError when the graph has a fault, ResourceError when the disk is full.
    """
    with steps.step("write") as progress:
        progress.start(graph.vertices, "vertices")
        if names is None:
            write_graph(path, graph, overwrite=overwrite, progress=progress.reach)
        else:
            with names_written(path, names, graph, overwrite=overwrite):
                write_graph(path, graph, overwrite=overwrite, progress=progress.reach)
            summary.notes.append(f"what the source calls the vertices is in {names_path(path)}")
    print(source)
    print(table(graph, summary, path))
    print("\n".join(steps.table()))
