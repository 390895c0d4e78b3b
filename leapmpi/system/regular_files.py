"""Opening files that others wrote: regular files only, since a pipe or a device may never end, or never begin."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path | str) -> BinaryIO:
    """Open the regular file `path` for reading. Raises OSError when it is something else or cannot be opened."""
    return open(path, "rb", opener=regular_only)


def regular_only(path: str, flags: int) -> int:
    """Open for `open`, as its `opener`. Raises OSError if `path` exists and is not a regular file."""
    # Without O_NONBLOCK a pipe would wait here for its other end.
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    try:
        check_regular(descriptor, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def check_regular(file: Path | str | int, path: Path | str) -> None:
    """Raise OSError, naming `path`, unless `file` (a path or a descriptor) is a regular file."""
    mode = os.stat(file).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a regular file", str(path))


def read_text(path: Path | str) -> str:
    """Read the text of the regular file `path`. Raises OSError as `open_regular`, UnicodeDecodeError if it is none."""
    with open_regular(path) as file:
        return file.read().decode("utf-8")
