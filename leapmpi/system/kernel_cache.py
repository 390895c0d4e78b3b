"""Compiled kernels on disk: each is compiled once per machine, and found again by what it is made of.

numba's own cache names a kernel by the path of its file, sees changes in that file alone, and lets every process that
misses a kernel compile it. Here a kernel's name is a digest of its code, its options, and all code and constants that
it reaches: a new version never reads an old kernel, and another copy of the same version finds it. The process that
misses a kernel first compiles it under a lock; the others wait, and load what it wrote.
"""

from __future__ import annotations

import fcntl
import functools
import gc
import hashlib
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.extending import _Intrinsic

_PACKAGES = ("leapmpi", "data_prep")
"""Modules of these packages may change with the version; the name of any other module stands for its content."""

_KEPT_SECONDS = 90 * 24 * 3600
"""Lifetime of a kernel that nobody reads."""

_NAP = 0.01
"""Seconds between two looks at a lock that another process holds."""

_PATIENCE = 120.0
"""Seconds after which a process compiles a kernel all the same: the other may have been stopped."""


class LockWaits:
    """Progress of a wait for another process's compilation: `looked` counts looks. The watchdog reads it."""

    def __init__(self) -> None:
        self.looked = 0


lock_waits = LockWaits()
"""The waits of this process."""


def cached(kernel: Any, folder: Path) -> Any:
    """Keep the compiled forms of `kernel`, a function that numba compiles, in `folder`, which exists."""
    # With NUMBA_DISABLE_JIT nothing is compiled.
    if isinstance(kernel, Dispatcher):
        cache = KernelCache(kernel, folder)
        vars(kernel).update(_cache=cache, compile=cache.compile)
    return kernel


def distinctly_named(function: Any) -> Any:
    """Give `function` a name that differs from those of others of the same factory.

    numba names machine code by qualified name, types of arguments, and a number that counts in each process. Kernels
    from the cache were counted in other processes: two of one name would be taken for each other.
    """
    if function.__closure__:
        function.__qualname__ += f"_{content_digest(function)[:12]}"
    return function


class KernelCache(_Cache):
    """The compiled forms of one kernel, a file for each signature and type of processor; see numba's `_Cache`."""

    def __init__(self, kernel: Dispatcher, folder: Path) -> None:
        self._kernel = kernel
        self._folder = folder
        self._enabled = True
        self._content: str | None = None
        self._locks: ExitStack | None = None

    def compile(self, signature: Any) -> Any:
        """Compile by the kernel's own `compile`, then release the lock. Load it if another process has compiled it."""
        # One thread of a process compiles at a time; kernels that a kernel calls are compiled meanwhile.
        with global_compiler_lock, ExitStack() as locks:
            before, self._locks = self._locks, locks
            # A compiler makes many objects that last until it is done: collecting garbage meanwhile finds little.
            if gc.isenabled():
                gc.disable()
                locks.callback(gc.enable)
            try:
                return type(self._kernel).compile(self._kernel, signature)
            finally:
                self._locks = before

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """Load the kernel compiled for `sig`; None if it is to be compiled, while others wait for it."""
        # A kernel that is found needs numba's memory alone. All else, which takes long to import, is for compiling.
        rtsys.initialize(target_context)
        path = self._path(sig, target_context.codegen())
        if path is None:
            return None
        found = _load(path, target_context)
        if found is None and self._locks:
            # Another process may compile it: wait, and look again.
            self._locks.enter_context(locked(path.with_suffix(".lock")))
            found = _load(path, target_context)
        return found

    def save_overload(self, sig: Any, cres: CompileResult) -> None:
        """Keep `cres`, the kernel compiled for `sig`. What cannot be kept or written is left out."""
        path = self._path(sig, cres.codegen)
        if path is None or cres.library.has_dynamic_globals or any(not each.can_cache for each in cres.lifted):
            return
        # Readers see a whole file or none; several processes may write the same kernel.
        aside = path.with_suffix(f".{os.getpid()}.partial")
        with suppress(OSError):
            try:
                aside.write_bytes(dumps(cres._reduce()))
                os.replace(aside, path)
            finally:
                aside.unlink(missing_ok=True)
            _remove_unread(self._folder)

    @property
    def cache_path(self) -> str:
        """The folder of compiled forms."""
        return str(self._folder)

    def enable(self) -> None:
        """Read and write compiled forms."""
        self._enabled = True

    def disable(self) -> None:
        """Stop reading and writing the cache."""
        self._enabled = False

    def flush(self) -> None:
        """Forget all compiled forms of this kernel on disk."""
        for path in self._folder.glob(f"{self._stem}-*.nbc"):
            path.unlink(missing_ok=True)

    @property
    def _stem(self) -> str:
        function = self._kernel.py_func
        name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        return "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in name)

    def _path(self, sig: Any, codegen: Any) -> Path | None:
        """Return the file of the kernel compiled for `sig` by `codegen`; None without a name that others would find."""
        if self._content is None:
            self._content = content_digest(self._kernel)
        # Types without a name of their own, such as those of functions, are shown with an address.
        key = repr((self._content, str(sig), codegen.magic_tuple(), numba.__version__, sys.version))
        if not self._enabled or " at 0x" in key:
            return None
        return self._folder / f"{self._stem}-{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}.nbc"


def content_digest(kernel: Any) -> str:
    """Digest a kernel's code, options, and the code and constants that it reaches: 32 hex digits.

    Comments, names of files and numbers of lines do not matter.
    """
    content = _Content()
    content.add_value(kernel)
    return content.hashed.hexdigest()


class _Content:
    """Digest of values, and of the functions that they reach."""

    def __init__(self) -> None:
        self.hashed = hashlib.blake2b(digest_size=16)
        self._seen: set[int] = set()

    def _add(self, text: object) -> None:
        self.hashed.update(f"{text}\n".encode(errors="surrogatepass"))

    def add_value(self, value: Any) -> None:
        """Add a kernel, a function of our packages with all that it reaches, or a constant."""
        if isinstance(value, Dispatcher):
            # Kernels may call each other in circles.
            if id(value) not in self._seen:
                self._add(sorted((name, _sorted(option)) for name, option in value.targetoptions.items()))
            self._add_function(value.py_func)
        elif isinstance(value, _Intrinsic):
            self._add_function(value._defn)
        elif isinstance(value, FunctionType) and value.__module__.partition(".")[0] in _PACKAGES:
            self._add_function(value)
        elif isinstance(value, tuple | list):
            for each in value:
                self.add_value(each)
        elif isinstance(value, np.ndarray):
            self._add((value.dtype.str, value.shape))
            self.hashed.update(np.ascontiguousarray(value).tobytes())
        else:
            self._add(_shown(value))

    def _add_function(self, function: FunctionType) -> None:
        # What is reached a second time is named alone.
        self._add(function.__qualname__)
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        for cell in function.__closure__ or ():
            self.add_value(cell.cell_contents)
        for value in function.__defaults__ or ():
            self.add_value(value)
        self._add_code(function.__code__, function.__globals__)

    def _add_code(self, code: CodeType, reached: dict[str, Any]) -> None:
        self.hashed.update(code.co_code)
        self._add((code.co_varnames, code.co_freevars, code.co_names))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._add_code(constant, reached)
            else:
                self._add(_sorted(constant))
        for name in code.co_names:
            value = reached.get(name)
            # Attributes of a module occur as names of the same code.
            if isinstance(value, ModuleType) and value.__name__.partition(".")[0] in _PACKAGES:
                for each in code.co_names:
                    if hasattr(value, each):
                        self.add_value(getattr(value, each))
            elif name in reached:
                self.add_value(value)


def _sorted(value: object) -> str:
    """Format `value` as text; sort the elements of sets, whose order differs from process to process."""
    return repr(sorted(map(repr, value))) if isinstance(value, set | frozenset) else _shown(value)


def _shown(value: object) -> str:
    """Format `value` as the same text in every process: its type if it would show its address."""
    text = getattr(value, "__name__", None) or repr(value)
    return str(type(value)) if " at 0x" in text else str(text)


def _load(path: Path, target_context: Any) -> CompileResult | None:
    """Load the compiled form in file `path`; None where there is none, or it is damaged."""
    rebuild: Callable[..., CompileResult] = CompileResult._rebuild
    try:
        return rebuild(target_context, *pickle.loads(path.read_bytes()))
    except Exception:  # a damaged file may raise anything; it is written again
        return None


@contextmanager
def locked(path: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Keep other processes that lock `path` waiting while the body runs, for `patience` seconds each at most.

    Where the file system has no locks, they do not wait. The file is gone once the last of them is done.
    """
    descriptor = None
    with suppress(OSError):
        descriptor = _take(path, time.monotonic() + patience)
    try:
        yield
    finally:
        if descriptor is not None:
            # While it is still locked: those who wait look for a file of this name again.
            path.unlink(missing_ok=True)
            os.close(descriptor)


def _take(path: Path, deadline: float) -> int | None:
    """Open and lock the file `path`; None at the time `deadline` of the clock time.monotonic."""
    while time.monotonic() < deadline:
        descriptor, held = os.open(path, os.O_RDWR | os.O_CREAT, 0o600), False
        try:
            with suppress(BlockingIOError, FileNotFoundError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A file that its last holder has removed locks out nobody who comes now.
                held = os.path.samestat(os.fstat(descriptor), path.stat())
            if held:
                return descriptor
        finally:
            if not held:
                os.close(descriptor)
        lock_waits.looked += 1
        time.sleep(_NAP)
    return None


@functools.cache
def _remove_unread(folder: Path) -> None:
    """Remove compiled forms that nobody has read for long; once in a process."""
    with suppress(OSError):
        for entry in folder.iterdir():
            status = entry.stat()
            if time.time() - max(status.st_atime, status.st_mtime) > _KEPT_SECONDS:
                entry.unlink(missing_ok=True)
