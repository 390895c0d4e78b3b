"""Facts about the dataset's and the run's folder, as one node sees them."""

from __future__ import annotations

import os
import re
import shutil
import socket
from pathlib import Path
from typing import Any

NETWORK = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "afs")
PARALLEL = ("lustre", "gpfs", "beegfs", "ceph", "panfs", "wekafs", "daos", "fuse.daos")


def facts(data: str | None, run: str | None) -> dict[str, Any]:
    """File system, free space and access of both folders; None for a folder that is not given."""
    return {
        "host": socket.gethostname(),
        "data": _folder(Path(data)) if data else None,
        "run": _folder(Path(run)) if run else None,
    }


def _folder(path: Path) -> dict[str, Any]:
    """Facts about `path`, or about the nearest folder above it that exists."""
    existing = path.absolute()
    while not os.path.exists(existing):
        existing = existing.parent
    return {
        "path": str(path),
        "exists": os.path.exists(path),
        "file_system": file_system(existing),
        "free": _free(existing),
        "readable": os.access(existing, os.R_OK | os.X_OK),
        "writable": os.access(existing, os.W_OK | os.X_OK),
    }


def _free(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def file_system(path: Path, mounts: str | None = None) -> str:
    """The type of the file system that holds `path`, such as 'ext4', 'nfs4' or 'lustre'.

    `mounts` is the text of /proc/self/mountinfo (man 5 proc_pid_mountinfo), read where not given.
    """
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace") if mounts is None else mounts
    except OSError:
        return "unknown"
    found, deepest = "unknown", -1
    real = Path(os.path.realpath(path))
    for line in text.splitlines():
        # Mount point among the fields before the dash, type of the file system right behind it.
        fields, _, rest = line.partition(" - ")
        words = fields.split()
        if len(words) < 5 or not rest:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[4]))
        # Of two mounts on one point the later one hides the other.
        if (point == real or point in real.parents) and len(point.parts) >= deepest:
            found, deepest = rest.split()[0], len(point.parts)
    return found
