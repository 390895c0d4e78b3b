"""Control groups of Linux (version 1 or 2) that limit memory, cached pages of files included, one for each process.

As a program it is what ranks are started by: it enters the group of its rank, then becomes the command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

GROUPS = "LEAPMPI_BENCH_GROUPS"
"""The environment variable that names the groups of the ranks, in order, with a colon between them."""

_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


class Group(NamedTuple):
    """A control group: its folder, and the file that tells its peak."""

    folder: Path
    peak_file: Path

    def enter(self) -> None:
        """Move this process there."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def peak(self) -> int | None:
        """Read the most bytes that were ever charged to it, cached pages included; None where it is unknown."""
        return int(self.peak_file.read_text()) if self.peak_file.exists() else None

    def remove(self) -> None:
        """Remove it; its processes have ended."""
        self.folder.rmdir()


def _memory_groups() -> Iterator[tuple[Path, str, str]]:
    """Find the control groups of this process that limit memory: folder, and the files of the limit and of the peak."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds == "memory":
            yield Path("/sys/fs/cgroup/memory" + path), "memory.limit_in_bytes", "memory.max_usage_in_bytes"
        elif not kinds:
            yield Path("/sys/fs/cgroup" + path), "memory.max", "memory.peak"


def new_group(memory: int, number: int = 0) -> Group | None:
    """Make a group with `memory` bytes; None where none can be made."""
    for parent, limit, peak in _memory_groups():
        folder = parent / f"leapmpi-{os.getpid()}-{number}"
        with suppress(OSError):
            folder.mkdir()
            try:
                (folder / limit).write_text(str(memory))
                return Group(folder, folder / peak)
            except OSError:
                folder.rmdir()
    return None


if __name__ == "__main__":
    RANK = next((int(os.environ[name]) for name in _RANKS if name in os.environ), 0)
    FOLDERS = list(filter(None, os.environ.get(GROUPS, "").split(":")))
    if FOLDERS:
        Group(Path(FOLDERS[RANK]), Path()).enter()
    os.execvp(sys.argv[1], sys.argv[1:])
