"""`--workers N`: the threads of a command. Kernels, sorts, digests, reads and writes release Python's lock."""

from __future__ import annotations

import argparse

from leapmpi.config.parser import number_between
from leapmpi.system.worker_threads import given_processors, set_processor_count

_BYTES_PER_WORKER = 128 * 2**20
"""Memory of a worker's blocks. So many fit even the smallest --max-mem: eight."""

_FITTING = 8


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add --workers to the flags of a command."""
    workers = "threads that share the work, by default the cores that the process may use; the result is the same"
    parser.add_argument("--workers", type=number_between(1), metavar="N", help=workers)


def use_workers(wanted: int | None, memory: int) -> None:
    """Share the work of this process among `wanted` threads, by default a thread for each core.

    Without `wanted` there are no more than `memory` bytes suffice for.
    """
    fitting = max(_FITTING, memory // _BYTES_PER_WORKER)
    set_processor_count(wanted or min(fitting, given_processors()))
