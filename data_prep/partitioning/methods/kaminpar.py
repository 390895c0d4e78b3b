"""KaMinPar: parts with few edges between them, several times faster than METIS on large graphs and with less memory.

KaMinPar (Gottesbüren, Heuer, Sanders, Schulz, Seemaier: "Deep Multilevel Graph Partitioning", ESA 2021) reads a
graph from a file and knows one weight per vertex. So the graph goes through a temporary file in the ParHIP format, and
post-processing balances the training vertices. With one thread the same seed gives the same parts; with several it does
not, so KaMinPar gets one.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np

from data_prep.partitioning.method_registry import PartitionMethod
from data_prep.partitioning.postprocess import MethodResult, rows_in_memory
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.undirected import Undirected
from leapmpi.dataset.graph import Graph
from leapmpi.errors import ConfigError

# Bits of the version word of a ParHIP file.
_UNWEIGHTED = 3
_SHORT_IDS = 8
_LEAST_IMBALANCE = 1e-3


def partition(graph: Graph, request: PartitionRequest) -> MethodResult:
    """Return the part of each vertex. Edge directions do not count.

    Raises ConfigError when the package kaminpar is missing.
    """
    try:
        library = importlib.import_module("kaminpar")
    except ImportError as error:
        raise ConfigError(
            "method kaminpar needs the package kaminpar: pip install kaminpar (leapmpi's extra), or use method grem"
        ) from error
    if request.parts == 1:
        return MethodResult(np.zeros(graph.vertices, np.int32))
    undirected = Undirected(graph)
    neighbours = np.empty(undirected.edges, np.uint32 if graph.vertices <= 2**32 else np.uint64)
    undirected.fill(neighbours)
    if undirected.edges:
        assignment = _run(library, undirected.indptr, neighbours, request)
    else:
        # Without edges every balanced cut is as good.
        assignment = np.arange(graph.vertices) % request.parts
    return MethodResult(assignment, rows_in_memory(undirected.indptr, neighbours))


def _run(library: ModuleType, indptr: np.ndarray, neighbours: np.ndarray, request: PartitionRequest) -> np.ndarray:
    """Return KaMinPar's part int64[n] of each vertex."""
    with tempfile.TemporaryDirectory(prefix="leapmpi-kaminpar-") as folder:
        path = Path(folder) / "graph.parhip"
        _write_parhip(path, indptr, neighbours)
        graph = library.load_graph(str(path), library.GraphFileFormat.PARHIP)
    library.reseed(request.seed % (2**31 - 1))
    solver = library.KaMinPar(1, library.default_context())
    # It refuses an imbalance of 0; post-processing enforces the caps in any case.
    return np.array(
        solver.compute_partition(graph, request.parts, max(_LEAST_IMBALANCE, request.tolerance - 1)), np.int64
    )


def _write_parhip(path: Path, indptr: np.ndarray, neighbours: np.ndarray) -> None:
    """Write an undirected graph: three words (version, vertices, edges), offsets in bytes, ids of neighbours."""
    short = neighbours.itemsize == 4
    header = np.array([_UNWEIGHTED | (_SHORT_IDS if short else 0), len(indptr) - 1, len(neighbours)], np.uint64)
    with open(path, "wb") as file:
        file.write(header.tobytes())
        first = header.nbytes + 8 * len(indptr)
        np.add(indptr * neighbours.itemsize, first, dtype=np.int64).astype(np.uint64).tofile(file)
        neighbours.tofile(file)


MEMBER = PartitionMethod(partition, weights=True)
