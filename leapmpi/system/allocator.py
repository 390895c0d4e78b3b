"""Settings of malloc and of garbage collection, so that no iteration pays again for freed pages or for a full walk.

glibc gives large blocks back to the system at once, and the next iteration pays again for every page, which takes
longer than writing it. Python's collector walks through all objects every few iterations. Most of them, some hundred
thousand, belong to imported modules and are never garbage.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of mallopt(3)."""

_NEVER = 2**31 - 1


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage while the body runs, which imports large libraries: they make many objects that all last.

    They are set aside too, where the program around has set aside none itself.
    """
    global _imports_set_aside
    enabled, others = gc.isenabled(), gc.get_freeze_count()
    gc.disable()
    try:
        yield
    finally:
        # Objects set aside by the surrounding program could not be distinguished from ours.
        if not others:
            gc.freeze()
            _imports_set_aside = True
        if enabled:
            gc.enable()


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory from now on; False where it is not glibc. The process shrinks no more."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))


_set_aside = _imports_set_aside = False
"""Whether this module has set objects aside: all that lasts, or what was imported alone."""


_left_to_program = False
"""Whether the program around was seen to have set objects aside itself."""


def set_aside_lasting_objects() -> None:
    """Exclude all present objects from garbage collection. Call it after set-up, when all of them will last.

    Does nothing once the program around has set objects aside itself: they could not be distinguished from ours.
    """
    global _set_aside, _left_to_program
    # The count walks through all objects set aside, so it is read once.
    if not (_set_aside or _imports_set_aside):
        _left_to_program = _left_to_program or gc.get_freeze_count() > 0
    if _left_to_program:
        return
    # Objects set aside before may have ended. Imports last, and walking through them is slow.
    if _set_aside:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    _set_aside = True


def take_back_lasting_objects() -> None:
    """Include in garbage collection again the objects set aside here."""
    global _set_aside, _imports_set_aside
    if _set_aside or _imports_set_aside:
        gc.unfreeze()
    _set_aside = _imports_set_aside = False


def leave_garbage() -> None:
    """Collect no garbage any more: at the end of a process, which is near, Python would walk through all objects."""
    gc.disable()
    gc.freeze()
