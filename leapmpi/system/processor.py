"""What computes on this machine, by name."""

from __future__ import annotations

import platform
from pathlib import Path


def processor_name() -> str:
    """The model of the processor as Linux names it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
