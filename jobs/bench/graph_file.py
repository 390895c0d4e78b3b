"""The graph that a benchmark is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from leapmpi.dataset.graph_file import open_graph
from leapmpi.dataset.topology import Topology


def load(path: Path) -> Topology:
    """The graph in `path`, in memory: of `leapmpi-prep` (.h5), or the arrays indptr and indices of an .npz file."""
    if path.suffix == ".npz":
        arrays = np.load(path)
        return Topology(arrays["indptr"], arrays["indices"], np.arange(len(arrays["indptr"]) - 1))
    graph = open_graph(path)
    return Topology(np.array(graph.indptr), np.array(graph.indices), np.array(graph.original_id))
