"""Memory that was freed stays with the process: an iteration's large arrays are made again without page faults.

glibc hands large blocks back to the system at once, and the next iteration pays for every page anew, which takes longer
than writing it.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of mallopt(3)."""

_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Make the C library keep what is freed from now on; False where it is not glibc. The process shrinks no more."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))
