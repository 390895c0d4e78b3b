"""Memory that this process has used, shared pages counted by their share, and that its machine has left."""

from __future__ import annotations

import resource
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from leapmpi.errors import ResourceError


def peak_bytes() -> int:
    """Return the peak of resident bytes, less other processes' share of the pages resident now (PSS).

    The plain peak where the system does not report shares. Shares are read when the peak has grown: the system walks
    through all pages for them, which takes a second for 60 GB.
    """
    return _less_shared(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


@lru_cache(maxsize=1)
def _less_shared(peak: int) -> int:
    """Return `peak`, bytes, less other processes' share of the pages resident now."""
    try:
        sizes = _sizes(Path("/proc/self/smaps_rollup").read_text())
        return peak - (sizes["Rss"] - sizes["Pss"])
    except (OSError, KeyError):
        return peak


def used_bytes() -> int:
    """Return the bytes resident now, shared pages counted by their share (PSS) where the system reports it."""
    try:
        return _sizes(Path("/proc/self/smaps_rollup").read_text())["Pss"]
    except (OSError, KeyError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def available_bytes() -> int | None:
    """Return the available memory of this machine, or of this process's control group; None where it is unknown."""
    found = []
    with suppress(OSError, KeyError):
        found.append(_sizes(Path("/proc/meminfo").read_text())["MemAvailable"])
    with suppress(OSError, ValueError):
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current"))
        if limit != "max":
            found.append(int(limit) - int(used))
    return min(found, default=None)


def check_memory(
    needed: int, what: str, host: str, advice: str = "use nodes with more memory or a smaller graph"
) -> None:
    """Raise ResourceError when `needed` bytes are more than this machine, called `host`, has left.

    The message begins with `what` ("... takes") and ends with `advice`.
    """
    free = available_bytes()
    if free is not None and needed > free:
        raise ResourceError(
            f"{what} {needed / 2**30:.1f} GiB but {host} has {free / 2**30:.1f} GiB of memory available; {advice}"
        )


def _sizes(text: str) -> dict[str, int]:
    """Parse bytes by name from lines such as `Pss:  1234 kB`."""
    fields = (line.split() for line in text.splitlines())
    return {each[0].rstrip(":"): int(each[1]) * 1024 for each in fields if len(each) == 3 and each[2] == "kB"}


def kills_for_memory() -> int:
    """Count the processes that the system has killed for lack of memory since it started."""
    with suppress(OSError, ValueError):
        lines = Path("/proc/vmstat").read_text(encoding="utf-8").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return 0
