"""Advice to the system on pages of mapped files.

The system reads a page where it is touched, and may evict it. Advice lets it read many at once, or keep some in memory.
"""

from __future__ import annotations

import mmap
import resource

import numpy as np
from numba import types

from leapmpi.system.jit import compiled

PAGE = mmap.PAGESIZE
ONE_BY_ONE, SOON, NO_LONGER, IN_ORDER = mmap.MADV_RANDOM, mmap.MADV_WILLNEED, mmap.MADV_DONTNEED, mmap.MADV_NORMAL
"""Advice on pages: reads of single places, that come soon, no more of this process, one after the other."""

EVICTED = 21
"""MADV_PAGEOUT: pages leave memory at once. Systems before Linux 5.4 ignore it."""

_madvise = types.ExternalFunction("madvise", types.int32(types.uintp, types.uintp, types.int32))
"""The C library's madvise: (address, bytes, advice)."""

_msync = types.ExternalFunction("msync", types.int32(types.uintp, types.uintp, types.int32))
"""The C library's msync: (address, bytes, flags)."""

_WRITE_NOW = 4
"""MS_SYNC: msync returns when the disk has the pages."""

_mlock = types.ExternalFunction("mlock", types.int32(types.uintp, types.uintp))
"""The C library's mlock: (address, bytes); 0 where the pages stay in memory from now on."""


@compiled
def announce(addresses, sizes, advice):
    """Give `advice` on sizes[i] bytes from each of the ascending `addresses` on: int64[k] both; one size serves all."""
    begin, end = np.int64(0), np.int64(0)
    for i in range(len(addresses)):
        # One call per run of adjacent pages: rows often share pages, and system calls are slow.
        address = addresses[i]
        size = sizes[i] if len(sizes) > 1 else sizes[0]
        first, last = address // PAGE * PAGE, (address + size + PAGE - 1) // PAGE * PAGE
        if begin <= first <= end:
            end = max(end, last)
            continue
        if end > begin:
            _madvise(np.uintp(begin), np.uintp(end - begin), np.int32(advice))
        begin, end = first, last
    if end > begin:
        _madvise(np.uintp(begin), np.uintp(end - begin), np.int32(advice))


def advise(array: np.ndarray, advice: int) -> None:
    """Give `advice` on the memory of `array`, whole pages of it."""
    begin = array.ctypes.data // PAGE * PAGE
    announce(np.array([begin]), np.array([array.ctypes.data + array.nbytes - begin]), advice)


@compiled
def _write_back(address, size):
    _msync(np.uintp(address), np.uintp(size), np.int32(_WRITE_NOW))


def write_back(array: np.ndarray) -> None:
    """Write the pages of `array`, mapped from a file, to the disk, and give them back to the system."""
    # A control group may end a process whose pages wait for a slow disk.
    begin = array.ctypes.data // PAGE * PAGE
    _write_back(begin, array.ctypes.data + array.nbytes - begin)
    advise(array, NO_LONGER)


@compiled
def _lock(addresses, sizes):
    """Keep the ranges in memory; return the bytes that were kept before the system refused."""
    kept = np.int64(0)
    for i in range(len(addresses)):
        if _mlock(np.uintp(addresses[i]), np.uintp(sizes[i])) != 0:
            break
        kept += sizes[i]
    return kept


def keep_in_memory(addresses: np.ndarray, sizes: np.ndarray) -> int:
    """Read sizes[i] bytes from each of `addresses` on (int64[k] both) and keep them in memory; return how many bytes.

    Fewer where the system limits locked memory (ulimit -l).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
    return int(_lock(addresses, sizes))
