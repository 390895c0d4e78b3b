"""A bus error ends a job of one rank with a sentence: a mapped file became shorter, or its disk failed.

No code of Python can run then; the handler is compiled, and does what a handler may: it writes and exits. In a job of
several ranks the others report the rank that was lost, and the file that changed.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from leapmpi.errors import DataError
from leapmpi.system.jit import numba

_SENTENCE = np.frombuffer(
    b"leapmpi: error: a file of the dataset became shorter while the job read it, or its disk failed (bus error); "
    b"leave a dataset alone while jobs use it, and start again\n",
    np.uint8,
)
_CODE = DataError.exit_code


@cache
def _handler() -> Any:
    """Compile the handler, a numba.core.ccallback.CFunc."""
    types = numba.types
    write = types.ExternalFunction("write", types.intp(types.int32, types.voidptr, types.uintp))
    leave = types.ExternalFunction("_exit", types.void(types.int32))

    @numba.cfunc(types.void(types.int32))
    def report_and_exit(number: int) -> None:
        write(types.int32(2), _SENTENCE.ctypes, types.uintp(_SENTENCE.size))
        leave(types.int32(_CODE))

    return report_and_exit


@contextmanager
def report_bus_errors(ranks: int) -> Iterator[None]:
    """Report bus errors in the body: one in a job of `ranks` ends the process with a sentence and an exit code."""
    if ranks > 1 or threading.current_thread() is not threading.main_thread():
        yield
        return
    library, handler = ctypes.CDLL(None), _handler()
    library.signal.argtypes, library.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    before = library.signal(signal.SIGBUS, handler.address)
    try:
        yield
    finally:
        library.signal(signal.SIGBUS, before)
