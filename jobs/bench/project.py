"""The checkout that these benchmarks measure: its folder, its interpreter, and the graphs they read.

Importing this module puts the checkout first on Python's path, so that a benchmark measures the code beside it,
whatever else is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leapmpi.dataset.topology import Topology

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))


def interpreter() -> Path:
    """Find the Python that runs leapmpi: of $LEAPMPI_ENV, the active or the project's environment, or this one."""
    places = [os.environ.get("LEAPMPI_ENV"), os.environ.get("VIRTUAL_ENV"), PROJECT / ".venv"]
    candidates = [Path(place, "bin/python") for place in places if place]
    return next((path for path in candidates if path.exists()), Path(sys.executable))


def environment() -> dict[str, str]:
    """Return the environment of a program of this checkout: Python looks for modules in the checkout first."""
    path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def synth(path: Path, *arguments: object) -> None:
    """Write a random graph with communities to `path` by `leapmpi-prep synth`; its messages go to standard error."""
    command = [str(interpreter()), "-m", "data_prep.cli", "synth", str(path), *map(str, arguments)]
    subprocess.run(command, env=environment(), check=True, stdout=sys.stderr)


def load_topology(path: Path) -> Topology:
    """Load the edges of the graph in `path` into memory.

    The file is one of `leapmpi-prep` (.h5), or an .npz file with the arrays indptr int64[vertices + 1] and indices
    int[edges].
    """
    # Not at the top: numpy would start its threads before the benchmark has set their number.
    import numpy as np

    from leapmpi.dataset.graph_file import open_graph
    from leapmpi.dataset.topology import Topology

    if path.suffix == ".npz":
        arrays = np.load(path)
        return Topology(arrays["indptr"], arrays["indices"], np.arange(len(arrays["indptr"]) - 1))
    graph = open_graph(path)
    return Topology(np.array(graph.indptr), np.array(graph.indices), np.array(graph.original_id))
