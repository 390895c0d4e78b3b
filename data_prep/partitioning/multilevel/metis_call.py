"""Run METIS in processes of its own: METIS does not check its input and may crash on odd graphs."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from data_prep.partitioning.multilevel.metis_process import MetisArrays, arrays_in
from leapmpi.errors import DataError, ResourceError

_PROCESS = Path(__file__).parent / "metis_process.py"


def run_metis(
    sizes: tuple[int, int, int],
    fill: Callable[[MetisArrays], None],
    parts: int,
    *,
    tolerance: float,
    seed: int,
    tries: int = 1,
    weighted: bool = False,
    processes: int = 1,
) -> MetisArrays:
    """Partition the undirected graph of `sizes` = (vertices, entries of neighbours, constraints) that `fill` writes.

    Even tries bisect recursively, odd ones make all parts at once. Several processes share the tries.
    Raises DataError when METIS fails or crashes, ResourceError when memory does not suffice.
    """
    # A crash of METIS ends its own process alone. All processes share the arrays, so the graph exists once.
    n, edges, constraints = sizes
    size = 8 * (n + 1 + edges * (1 + weighted) + (constraints + tries) * n)
    with _shared_file(size) as file:
        arrays = arrays_in(np.frombuffer(mmap.mmap(file.fileno(), size), np.int64), *sizes, weighted)
        fill(arrays)
        out = arrays.assignments
        out[:] = -1

        # Each process runs some of the tries.
        common = (file.fileno(), n, edges, constraints, int(weighted), parts, tolerance, seed)
        bounds = [tries * i // processes for i in range(processes + 1)]
        running = [_start([*common, first, last], file.fileno()) for first, last in pairwise(bounds)]
        ended = [(process, process.communicate()) for process in running]
    for process, (output, errors) in ended:
        _check(process.returncode, errors or output)
    if out.min(initial=0) < 0 or out.max(initial=0) >= parts:
        raise DataError("METIS returned no parts; try another --seed or --parts, or method random")
    return arrays


def _start(arguments: list[object], descriptor: int) -> subprocess.Popen:
    """Start a process of metis_process.py that inherits the shared file."""
    command = [sys.executable, "-P", str(_PROCESS), *map(str, arguments)]
    return subprocess.Popen(command, pass_fds=(descriptor,), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _shared_file(size: int) -> BinaryIO:
    """Create a file of `size` bytes in memory, or a temporary one where the system has none. Raises ResourceError."""
    in_memory = hasattr(os, "memfd_create")
    file = os.fdopen(os.memfd_create("leapmpi-metis"), "r+b") if in_memory else tempfile.TemporaryFile()  # noqa: SIM115
    try:
        # Allocated now: a file that cannot grow would end the process by a signal later.
        os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise ResourceError(
            f"METIS needs {size / 2**30:.1f} GiB for its input; use method grem, hash or random"
        ) from error
    return file


def _check(code: int, message: str) -> None:
    """Raise what the exit code of a process and its message mean, unless it succeeded."""
    message = " ".join(message.split())[-300:]
    if code == -signal.SIGKILL or "Memory" in message:
        raise ResourceError("METIS ran out of memory; use a machine with more, or method grem, hash or random")
    if code < 0:
        name = signal.Signals(-code).name
        raise DataError(f"METIS crashed ({name}) on this graph; try another --seed or --parts, or method random")
    if code:
        raise DataError(f"METIS failed ({message or f'code {code}'}); try another --seed or --parts, or method random")
