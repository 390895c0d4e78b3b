"""Import of torch and other modules of training without garbage collection, and without what commands do not use.

At its end torch loads Python forms of its operations for tensors without data, by which its compiler reasons: a quarter
of the processor time of importing it, on every rank of every job. Training needs none of them. They are left out until
code of others runs, which may.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from leapmpi.registry import plugins_installed
from leapmpi.system.allocator import without_collection

_LEFT_OUT = "torch._meta_registrations"
"""Imported for its effect alone; what of torch needs it, its compiler, imports it itself."""


@contextmanager
def program_imports() -> Iterator[None]:
    """Run the body, which imports what a command needs. All of torch is loaded where it was before."""
    with without_collection():
        if "torch" in sys.modules or plugins_installed():
            yield
            return
        # torch finds an empty module in the place of the one that is left out.
        sys.modules[_LEFT_OUT] = stand_in = ModuleType(_LEFT_OUT)
        try:
            yield
        finally:
            if sys.modules.get(_LEFT_OUT) is stand_in:
                del sys.modules[_LEFT_OUT]
            vars(sys.modules.get("torch", stand_in)).pop("_meta_registrations", None)


def complete_torch() -> None:
    """Load what `program_imports` left out, where torch is loaded: code of others runs from now on."""
    if "torch" in sys.modules:
        importlib.import_module(_LEFT_OUT)
