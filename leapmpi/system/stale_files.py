"""Folders of leapmpi on a machine; those left by killed jobs are found and removed.

Folders of leapmpi carry their owner's process and process name space in their names: leapmpi-KIND.NAMESPACE.PROCESS.*
in the temporary folder and in /dev/shm.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")

_OWNED = re.compile(r"leapmpi-(local|single)\.(\d+)\.(\d+)\..+")


def user_cache() -> Path:
    """Return the folder of leapmpi in the user's cache, which may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leapmpi"


def prefix(kind: str) -> str:
    """Return the prefix of temporary folders of this process."""
    return f"leapmpi-{kind}.{_namespace()}.{os.getpid()}."


def leftovers() -> list[Path]:
    """List folders of this user's ended jobs on this machine, in the temporary folder and in shared memory, sorted."""
    found = []
    for place in (Path(tempfile.gettempdir()), SHARED_MEMORY):
        with suppress(OSError):
            found += [entry for entry in place.iterdir() if _is_left(entry)]
    return sorted(found)


def clean() -> list[Path]:
    """Remove what `leftovers` finds; returns the folders that are gone."""
    found = leftovers()
    for each in found:
        shutil.rmtree(each, ignore_errors=True)
    return [each for each in found if not each.exists()]


def _is_left(entry: Path) -> bool:
    """Return whether `entry` is a folder of ours whose owner, a process visible to this one, has ended."""
    name = _OWNED.fullmatch(entry.name)
    if not name or name[2] != _namespace() or Path("/proc", name[3]).exists():
        return False
    status = entry.lstat()
    return entry.is_dir() and not entry.is_symlink() and status.st_uid == os.getuid()


def _namespace() -> str:
    """Return the number of the process name space: process numbers are comparable only within one."""
    return re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
