"""`leapmpi-prep check PATH`: verify every value, order, count and digest of a graph file or a dataset."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "verify every value, order, count and digest of a graph file or a dataset"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("path", type=Path, help="graph file or dataset folder")


def run(arguments: argparse.Namespace) -> int:
    """Verify; one line when all is well, DataError with the first fault otherwise."""
    from data_prep.open_any import open_any
    from data_prep.vertex_names import read_names
    from leapmpi.dataset.partitioned import Dataset
    from leapmpi.dataset.verify import verify, verify_graph

    found = open_any(arguments.path)
    if isinstance(found, Dataset):
        verify(found)
        what, uuid = f"dataset of {found.parts} parts", found.graph_uuid
    else:
        found = verify_graph(arguments.path)
        names = read_names(arguments.path, found)
        what, uuid = "graph file" if names is None else "graph file with names of its vertices", found.uuid
    print(f"{arguments.path}: sound {what}, {found.vertices:,} vertices, {found.edges:,} edges, graph {uuid}")
    return 0
