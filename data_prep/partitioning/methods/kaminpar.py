"""KaMinPar: parts with few edges between them, several times faster than METIS on large graphs and with less memory.

KaMinPar (Gottesbüren, Heuer, Sanders, Schulz, Seemaier: "Deep Multilevel Graph Partitioning", ESA 2021) reads a
graph from a file and knows one weight per vertex. So the graph goes through a temporary file in the ParHIP format,
and training vertices are balanced afterwards. With one thread the same seed gives the same parts; its parallel runs
do not, so it gets one.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path

import numpy as np

from data_prep.partitioning.part_ordering import cut_weights, near_numbers
from data_prep.partitioning.rebalance import fill_empty, rebalance
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.undirected import Undirected
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.errors import ConfigError

_UNWEIGHTED, _SHORT_IDS = 3, 8
"""Bits of the version word of a ParHIP file."""


def partition(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """Part int32[n] of each vertex. Edge directions do not count.

    Raises ConfigError when the package kaminpar is missing.
    """
    library = _library()
    n, parts = graph.vertices, request.parts
    if parts == 1:
        return np.zeros(n, np.int32)
    undirected = Undirected(graph)
    neighbours = np.empty(undirected.edges, np.uint32 if n <= 2**32 else np.uint64)
    undirected.fill(neighbours)
    assignment = _run(library, undirected.indptr, neighbours, request) if undirected.edges else np.arange(n) % parts
    fill_empty(assignment, parts)
    training = np.zeros(n, bool) if graph.split is None else np.asarray(graph.split) == names.TRAIN
    rebalance(undirected.indptr, neighbours, assignment, training, parts, request.tolerance)
    numbers = near_numbers(cut_weights(undirected.indptr, neighbours, assignment, parts))
    return numbers[assignment].astype(np.int32)


def _library():
    try:
        return importlib.import_module("kaminpar")
    except ImportError as error:
        raise ConfigError(
            "method kaminpar needs the package kaminpar: pip install kaminpar (leapmpi's extra), or use method grem"
        ) from error


def _run(library, indptr: np.ndarray, neighbours: np.ndarray, request: PartitionRequest) -> np.ndarray:
    """KaMinPar's part int64[n] of each vertex."""
    with tempfile.TemporaryDirectory(prefix="leapmpi-kaminpar-") as folder:
        path = Path(folder) / "graph.parhip"
        _write_parhip(path, indptr, neighbours)
        graph = library.load_graph(str(path), library.GraphFileFormat.PARHIP)
    library.reseed(request.seed % (2**31 - 1))
    solver = library.KaMinPar(1, library.default_context())
    return np.array(solver.compute_partition(graph, request.parts, max(0.0, request.tolerance - 1)), np.int64)


def _write_parhip(path: Path, indptr: np.ndarray, neighbours: np.ndarray) -> None:
    """Write an undirected graph: three words (version, vertices, edges), offsets in bytes, ids of neighbours."""
    short = neighbours.itemsize == 4
    header = np.array([_UNWEIGHTED | (_SHORT_IDS if short else 0), len(indptr) - 1, len(neighbours)], np.uint64)
    with open(path, "wb") as file:
        file.write(header.tobytes())
        first = header.nbytes + 8 * len(indptr)
        np.add(indptr * neighbours.itemsize, first, dtype=np.int64).astype(np.uint64).tofile(file)
        neighbours.tofile(file)
