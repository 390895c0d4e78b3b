"""`leapmpi-prep check PATH`: verify every value, order, count and digest of a graph file or a dataset."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from data_prep.commands.import_graph import add_workers

if TYPE_CHECKING:
    from leapmpi.dataset.graph import Graph
    from leapmpi.dataset.partitioned import Dataset

BYTES_PER_VERTEX = 32  # original ids, as they stand and sorted, and splits; measured

HELP = "verify every value, order, count and digest of a graph file or a dataset"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the graph or dataset to check, and the limits of memory and threads."""
    parser.add_argument("path", type=Path, help="graph file or dataset folder")
    most = "most memory to use, such as 4G; by default half of what is available"
    parser.add_argument("--max-mem", metavar="SIZE", help=most)
    add_workers(parser)


def open_any(path: Path) -> Graph | Dataset:
    """Open the dataset in folder `path` (or whose dataset.h5 it is), or the graph in file `path`.

    Raises DataError when it is neither, or damaged.
    """
    from leapmpi.dataset.graph_file import open_graph
    from leapmpi.dataset.hdf5 import names
    from leapmpi.dataset.partitioned import open_dataset

    if path.is_dir():
        return open_dataset(path, typed=True)
    if path.name == names.DATASET_FILE and path.is_file():
        return open_dataset(path.parent, typed=True)
    return open_graph(path)


def run(arguments: argparse.Namespace) -> int:
    """Verify; one line when all is well, DataError with the first fault otherwise."""
    from data_prep.progress import Steps
    from data_prep.workspace import memory_budget, require, use_workers
    from leapmpi.dataset.hdf5.names import DATASET_FILE
    from leapmpi.dataset.names_of_vertices import open_names
    from leapmpi.dataset.partitioned import Dataset
    from leapmpi.dataset.verify import verify, verify_graph

    # The file is opened once; its kind decides what is verified.
    memory = memory_budget(arguments.max_mem)
    use_workers(arguments.workers, memory)
    found = open_any(arguments.path)
    require(memory, found.vertices * BYTES_PER_VERTEX, f"checking {found.vertices:,} vertices", "allow more")
    steps = Steps()
    with steps.step("check") as progress:
        progress.start(found.vertices, "vertices")
        if isinstance(found, Dataset):
            verify(found, progress=progress.reach)
        else:
            verify_graph(arguments.path, progress.reach, found)

    if isinstance(found, Dataset):
        what, uuid, file = f"dataset of {found.parts} parts", found.graph_uuid, found.folder / DATASET_FILE
    else:
        what, uuid, file = "graph file", found.uuid, arguments.path
    what += " with names of its vertices" if open_names(file, found.attributes) is not None else ""
    print(f"{arguments.path}: sound {what}, {found.vertices:,} vertices, {found.edges:,} edges, graph {uuid}")
    print("\n".join(steps.table()))
    return 0
