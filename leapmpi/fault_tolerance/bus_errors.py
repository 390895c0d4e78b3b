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

import numpy as np

from leapmpi.errors import DataError
from leapmpi.system.jit import numba

_SENTENCE = np.frombuffer(
    b"leapmpi: error: a file of the dataset became shorter while the job read it, or its disk failed (bus error); "
    b"leave a dataset alone while jobs use it, and start again\n",
    np.uint8,
)
_CODE = DataError.exit_code

_types = numba.types
_write = _types.ExternalFunction("write", _types.intp(_types.int32, _types.voidptr, _types.uintp))
_exit = _types.ExternalFunction("_exit", _types.void(_types.int32))


@numba.cfunc(_types.void(_types.int32), cache=True)
def _say_and_exit(number: int) -> None:
    _write(_types.int32(2), _SENTENCE.ctypes, _types.uintp(_SENTENCE.size))
    _exit(_types.int32(_CODE))


@contextmanager
def bus_errors_told(ranks: int) -> Iterator[None]:
    """While the body runs, a bus error of a job of one of `ranks` ends the process with a sentence and an exit code."""
    if ranks > 1 or threading.current_thread() is not threading.main_thread():
        yield
        return
    library = ctypes.CDLL(None)
    library.signal.argtypes, library.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    before = library.signal(signal.SIGBUS, _say_and_exit.address)
    try:
        yield
    finally:
        library.signal(signal.SIGBUS, before)
