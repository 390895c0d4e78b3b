"""Memory of this process, shared pages counted by their share."""

from __future__ import annotations

from pathlib import Path

_ROLLUP = Path("/proc/self/smaps_rollup")


def proportional_bytes() -> int:
    """Bytes resident now, pages shared by n processes counted 1/n (PSS); the plain resident size where unknown."""
    try:
        for line in _ROLLUP.read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
