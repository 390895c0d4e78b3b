"""What iterations need not pay for again: the pages of freed memory, and the garbage collector's walk through torch.

glibc hands large blocks back to the system at once, and the next iteration pays for every page anew, which takes longer
than writing it. Python's collector goes through all objects every few iterations, those of imported modules too, which
are some hundred thousand and never garbage.
"""

from __future__ import annotations

import ctypes
import gc

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


_set_aside = False
"""Whether what garbage collection leaves alone was set aside here."""


def set_aside_lasting_objects() -> None:
    """Spare all objects that live now from garbage collection: call it when set-up is over and what lives will last.

    Does nothing where the program around has set objects aside itself: they could not be told from ours.
    """
    global _set_aside
    if gc.get_freeze_count() and not _set_aside:
        return
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    _set_aside = True


def take_back_lasting_objects() -> None:
    """Have garbage collection look at all objects again, once what was set aside here may be done with."""
    global _set_aside
    if _set_aside:
        gc.unfreeze()
    _set_aside = False
