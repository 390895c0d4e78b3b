"""numba, set up for batch jobs: all kernels' settings, and a cache that works where home folders are read-only."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.system.stale_files import user_cache


def writable(folder: Path) -> bool:
    """Return whether files can be made in `folder`; make the folder where it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def cache_folder() -> Path:
    """Return the folder for compiled kernels: $NUMBA_CACHE_DIR, the user's cache, or a per-user temporary folder."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given)
    home = user_cache() / "kernels"
    if writable(home):
        return home

    # Home folders of batch nodes may be read-only.
    temporary = Path(tempfile.gettempdir()) / f"leapmpi-kernels-{os.getuid()}"
    temporary.mkdir(mode=0o700, exist_ok=True)
    # A folder that another user put there could hold anything: cached kernels are code.
    owner = temporary.lstat()
    return temporary if owner.st_uid == os.getuid() and not owner.st_mode & 0o022 else Path(tempfile.mkdtemp())


_FOLDER = cache_folder()
with suppress(OSError):  # kernels are compiled all the same
    _FOLDER.mkdir(parents=True, exist_ok=True)
os.environ["NUMBA_CACHE_DIR"] = str(_FOLDER)

import numba  # noqa: E402  (the cache folder must be set first)

from leapmpi.system.kernel_cache import cached, distinctly_named  # noqa: E402


def _load_array_functions() -> None:
    """Load numba's functions of arrays, which the first kernel needs, without scipy.linalg.

    They look for scipy's BLAS when they are loaded, which takes 0.3 s of every rank. Kernels with matrix products still
    find it when they are compiled.
    """
    if "scipy.linalg" in sys.modules:
        return
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        del sys.modules["scipy.linalg"]


_load_array_functions()


def _compiler(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Build a decorator that compiles a function with `options` at its first call, or finds it in the cache.

    No kernel is called from C: without an entry for that, it takes less time to compile and to load.
    """
    compiler = numba.njit(nogil=True, no_cfunc_wrapper=True, **options)
    return lambda function: cached(compiler(distinctly_named(function)), _FOLDER)


def unsigned(ids: np.ndarray) -> np.ndarray:
    """View ids, which are not negative, as unsigned integers of the same width.

    Kernels gather several times faster by these: they cannot count from the end of an array.
    """
    return ids.view(f"u{ids.itemsize}")


compiled = _compiler()
# Dot products only: their sums may be split over vector lanes. Bits then depend on the processor, not on threads.
compiled_dot = _compiler(fastmath={"reassoc", "contract"})
# Divisions by zero give inf or nan as in numpy; without a check for them, loops become vectors.
compiled_dividing = _compiler(error_model="numpy")
