"""numba, set up for batch jobs: all kernels' settings, and a cache that works where home folders are read-only.

numba keys its cache by source and processor type; the folder adds the user.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from leapmpi.system.processor import user_cache

_SHARED_KERNELS = (
    *("system/intrinsics.py", "system/counter_rng.py", "nn/kernels/simd.py", "nn/kernels/exponential.py"),
    *("sampling/source_numbers.py", "sampling/node_wise.py"),
)
"""Modules whose kernels others inline."""


def writable(folder: Path) -> bool:
    """Whether files can be made in `folder`, which is made where it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _version_of_shared_kernels() -> str:
    """A digest of the kernels that others inline: numba notices changes only in the file a kernel stands in."""
    package = Path(__file__).parents[1]
    sources = b"".join((package / name).read_bytes() for name in _SHARED_KERNELS)
    return hashlib.blake2b(sources, digest_size=6).hexdigest()


def cache_folder() -> Path:
    """The folder for compiled kernels: $NUMBA_CACHE_DIR, the user's cache, or a per-user temporary folder."""
    # A folder of the user's choice, or one for this version of the kernels in the user's cache.
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given)
    version = _version_of_shared_kernels()
    home = user_cache() / f"kernels-{version}"
    if writable(home):
        return home

    # Home folders of batch nodes may be read-only.
    temporary = Path(tempfile.gettempdir()) / f"leapmpi-kernels-{os.getuid()}-{version}"
    temporary.mkdir(mode=0o700, exist_ok=True)
    # A folder that another user put there could hold anything: cached kernels are code.
    owner = temporary.lstat()
    return temporary if owner.st_uid == os.getuid() and not owner.st_mode & 0o022 else Path(tempfile.mkdtemp())


os.environ["NUMBA_CACHE_DIR"] = str(cache_folder())

import numba  # noqa: E402  (the cache folder must be set first)

compiled = numba.njit(cache=True, nogil=True)
compiled_parallel = numba.njit(cache=True, nogil=True, parallel=True)
# Dot products only: their sums may be split over vector lanes. Bits then depend on the processor, not on threads.
compiled_dot = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
# Divisions by zero give inf or nan as in numpy; without a check for them, loops become vectors.
compiled_dividing = numba.njit(cache=True, nogil=True, error_model="numpy")
prange = numba.prange


def set_threads(count: int) -> None:
    """Use `count` threads in parallel kernels, at most what numba was started with."""
    numba.set_num_threads(max(1, min(count, numba.config.NUMBA_NUM_THREADS)))
