"""Memory of this process, shared pages counted by their share."""

from __future__ import annotations

import resource
from pathlib import Path


def peak_bytes() -> int:
    """The most bytes ever resident, less what other processes share of the pages resident now (PSS).

    The plain peak where the system does not tell shares.
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    try:
        sizes = _sizes(Path("/proc/self/smaps_rollup").read_text())
        return peak - (sizes["Rss"] - sizes["Pss"])
    except (OSError, KeyError):
        return peak


def _sizes(text: str) -> dict[str, int]:
    """Bytes by name from lines such as `Pss:  1234 kB`."""
    fields = (line.split() for line in text.splitlines())
    return {each[0].rstrip(":"): int(each[1]) * 1024 for each in fields if len(each) == 3 and each[2] == "kB"}
