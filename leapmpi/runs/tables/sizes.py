"""Sizes in text."""

from __future__ import annotations


def size_text(count: float) -> str:
    """Bytes for people: '1.5 MiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
