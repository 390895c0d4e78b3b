"""Memory that all ranks of a node see and that cannot outlive them: an anonymous file (memfd) has no name to leave."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from leapmpi.comm.collectives import all_gather_values

if TYPE_CHECKING:
    from mpi4py import MPI


def map_shared(node: MPI.Intracomm, size: int, name: str, file: int | None = None) -> mmap.mmap | None:
    """Map memory of `size` bytes for all ranks of `node`, or None on all of them if one cannot. Collective.

    file: on the first rank the handle of a file to map instead, which is closed.
    """
    # The first rank makes the memory; the others open it through the first rank's process.
    handle, memory = _create_shared(size, name, file) if node.rank == 0 else (-1, None)
    place = all_gather_values(node, [os.getpid(), handle, os.fstat(handle).st_ino] if memory else None)[0]
    if node.rank != 0 and place:
        process, handle_there, inode = place
        memory = _open_shared(process, handle_there, inode, size)

    # The first rank's handle may be closed once all have mapped the memory.
    everywhere = all(all_gather_values(node, memory is not None))
    if node.rank == 0 and memory:
        os.close(handle)
    return memory if everywhere else None


def _create_shared(size: int, name: str, file: int | None) -> tuple[int, mmap.mmap | None]:
    """Create an unnamed file of `size` bytes, and map it; None where a limit on file sizes forbids it."""
    handle = os.memfd_create(name) if file is None else file
    try:
        os.ftruncate(handle, size)
        return handle, mmap.mmap(handle, size)
    except OSError:
        os.close(handle)
        return -1, None


def _open_shared(process: int, handle: int, inode: int, size: int) -> mmap.mmap | None:
    """Map the memory behind `handle` of `process`; None where it cannot be reached."""
    with suppress(OSError, ValueError), open(os.open(f"/proc/{process}/fd/{handle}", os.O_RDWR), "r+b", 0) as file:
        # In another process name space the number may belong to a stranger.
        status = os.fstat(file.fileno())
        if (status.st_ino, status.st_size) == (inode, size):
            return mmap.mmap(file.fileno(), size)
    return None
