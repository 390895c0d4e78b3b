"""Unnamed files on the disk of temporary files, and the types of file systems."""

from __future__ import annotations

import mmap
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

from leapmpi.errors import ConfigError, ResourceError

IN_MEMORY = ("tmpfs", "ramfs")
"""File systems whose files are memory."""


def unnamed_file(size: int, what: str) -> int:
    """Create an unnamed file of `size` bytes on the disk of temporary files (TMPDIR); return its handle.

    Its space is reserved, so that no later write fails. It vanishes when no process has it open or mapped.

    Raises ConfigError where temporary files are in memory, ResourceError where the disk has too little space; messages
    begin with `what` ("... take").
    """
    folder = tempfile.gettempdir()
    takes = f"{what} {size / 2**30:.1f} GiB" if size >= 2**29 else f"{what} {size / 2**20:.1f} MiB"
    if file_system(Path(folder)) in IN_MEMORY:
        raise ConfigError(f"{takes} in a file, but {folder} is in memory; set TMPDIR to a folder on a disk")
    # Unlinked at once: even a killed process leaves no file.
    handle, path = tempfile.mkstemp(prefix="leapmpi-", dir=folder)
    os.unlink(path)
    try:
        os.posix_fallocate(handle, 0, max(1, size))
    except OSError as error:
        os.close(handle)
        raise ResourceError(
            f"{takes} in a file, but {folder} cannot take it ({error.strerror}); "
            "free some space there, or set TMPDIR to a folder with more"
        ) from error
    return handle


def mapped_file(size: int, what: str) -> mmap.mmap:
    """Map the file of `unnamed_file` with these arguments for this process alone; raises the same errors."""
    handle = unnamed_file(size, what)
    try:
        return mmap.mmap(handle, max(1, size))
    finally:
        os.close(handle)


def file_system(path: Path, mounts: str | None = None) -> str:
    """Return the type of the file system that holds `path`, such as 'ext4', 'nfs4' or 'lustre'.

    `mounts` is the text of /proc/self/mountinfo (man 5 proc_pid_mountinfo), read if not given.
    """
    if mounts is None:
        with suppress(OSError):
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    found, deepest = "unknown", -1
    real = Path(os.path.realpath(path))
    for line in (mounts or "").splitlines():
        # The mount point is a field before the dash; the type of the file system follows it.
        fields, _, rest = line.partition(" - ")
        words = fields.split()
        if len(words) < 5 or not rest:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[4]))
        # The later of two mounts on one point hides the other.
        if (point == real or point in real.parents) and len(point.parts) >= deepest:
            found, deepest = rest.split()[0], len(point.parts)
    return found
