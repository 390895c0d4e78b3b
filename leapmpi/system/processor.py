"""This machine: what computes on it, by name, and where its user's caches lie."""

from __future__ import annotations

import os
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


def user_cache() -> Path:
    """The folder of leapmpi in the user's cache, which may not be there yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leapmpi"
