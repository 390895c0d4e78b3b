"""METIS: parts with few edges between them, balanced in vertices and in training vertices.

METIS (Karypis, Kumar, SIAM J. Sci. Comput. 20(1), 1998) does not check its input and may crash on odd graphs. It
gets the undirected graph, which is valid by construction, and runs in a process of its own. What it returns is
made to keep its promises (no part empty, balance), then parts are numbered so that near parts have near numbers.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from data_prep.balance import training_vertices
from data_prep.near_numbers import cut_weights, near_numbers
from data_prep.rebalance import fill_empty, rebalance
from data_prep.request import CutRequest
from data_prep.undirected import Undirected
from leapmpi.dataset.graph import Graph
from leapmpi.errors import DataError, ResourceError

_PROCESS = Path(__file__).parent.parent / "metis_process.py"


def partition(graph: Graph, request: CutRequest) -> np.ndarray:
    """Part int32[n] of each vertex. Edge directions do not count.

    Raises DataError when METIS fails or crashes, ResourceError when memory does not suffice.
    """
    n, parts = graph.vertices, request.parts
    if parts == 1:
        return np.zeros(n, np.int32)
    training = training_vertices(graph)
    undirected = Undirected(graph)
    neighbours, assignment = _run_metis(undirected, training, parts, request.seed)
    fill_empty(assignment, parts)
    rebalance(undirected.indptr, neighbours, assignment, training, parts, request.tolerance)
    numbers = near_numbers(cut_weights(undirected.indptr, neighbours, assignment, parts))
    return numbers[assignment].astype(np.int32)


def _run_metis(undirected: Undirected, training: np.ndarray, parts: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The neighbours int64[edges] of all vertices and METIS's parts int64[n] of them.

    The arrays lie in one memory-backed file shared with the process: indptr, neighbours, weights, parts.
    """
    n, edges, constraints = len(training), undirected.edges, 2 if training.any() else 1
    words = (n + 1) + edges + constraints * n + n
    with _shared_file() as file:
        _reserve(file, 8 * words)
        shared = np.frombuffer(mmap.mmap(file.fileno(), 8 * words), np.int64)
        indptr, neighbours, weights, assignment = np.split(shared, np.cumsum([n + 1, edges, constraints * n]))
        indptr[:] = undirected.indptr
        undirected.fill(neighbours)
        weights.reshape(n, constraints)[:, 0] = 1
        weights.reshape(n, constraints)[:, 1:] = training[:, None]
        assignment[:] = -1
        command = [sys.executable, "-P", str(_PROCESS), *map(str, (file.fileno(), n, edges, constraints, parts, seed))]
        done = subprocess.run(command, pass_fds=(file.fileno(),), capture_output=True, text=True, check=False)
    _check(done, assignment, parts)
    return neighbours, assignment


def _shared_file():
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("leapmpi-metis"), "r+b")
    return tempfile.TemporaryFile()


def _reserve(file, size: int) -> None:
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise ResourceError(f"METIS needs {size / 2**30:.1f} GiB for its input; use method hash or random") from error


def _check(done: subprocess.CompletedProcess, assignment: np.ndarray, parts: int) -> None:
    said = " ".join((done.stderr or done.stdout).split())[-300:]
    if done.returncode == -signal.SIGKILL or "Memory" in said:
        raise ResourceError("METIS ran out of memory; use a machine with more, or method hash or random")
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise DataError(f"METIS crashed ({name}) on this graph; try another --seed or --parts, or method random")
    if done.returncode or assignment.min() < 0 or assignment.max() >= parts:
        raise DataError(
            f"METIS failed ({said or 'no parts returned'}); try another --seed or --parts, or method random"
        )
