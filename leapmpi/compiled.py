"""numba, set up for batch jobs: a cache that works on shared and read-only homes.

All compiled kernels are made by `compiled` or `compiled_parallel`: numba's settings stand in one place.
numba keys its cache by source and processor type; the folder adds the user. Threads are set by `set_threads`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def cache_folder() -> Path:
    """The folder for compiled kernels: $NUMBA_CACHE_DIR, the user's cache, or a per-user temporary folder."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leapmpi" / "kernels"
    if _writable(home):
        return home
    return Path(tempfile.gettempdir()) / f"leapmpi-kernels-{os.getuid()}"


os.environ["NUMBA_CACHE_DIR"] = str(cache_folder())

import numba  # noqa: E402  (the cache folder must be set first)

compiled = numba.njit(cache=True, nogil=True)
compiled_parallel = numba.njit(cache=True, nogil=True, parallel=True)
# Dot products only: their sums may be split over vector lanes. Bits then depend on the processor, not on threads.
compiled_dot = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
prange = numba.prange


def set_threads(count: int) -> None:
    """Use `count` threads in parallel kernels, at most what numba was started with."""
    numba.set_num_threads(max(1, min(count, numba.config.NUMBA_NUM_THREADS)))
