"""Open a graph file or a dataset, for the commands that take both."""

from __future__ import annotations

from pathlib import Path

from leapmpi.dataset.graph import Graph
from leapmpi.dataset.graph_file import open_graph
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.partitioned import Dataset, open_dataset


def open_any(path: Path) -> Graph | Dataset:
    """The dataset in folder `path` (or whose dataset.h5 it is), or the graph in file `path`.

    Raises DataError when it is neither, or damaged.
    """
    if path.is_dir():
        return open_dataset(path)
    if path.name == names.DATASET_FILE and path.is_file():
        return open_dataset(path.parent)
    return open_graph(path)
