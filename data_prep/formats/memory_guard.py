"""Refusal of files that are read whole where memory does not suffice, before they are read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from data_prep.workspace import Workspace, require


def require_whole(source: Path, files: Iterable[Path], times: int, workspace: Workspace | None) -> None:
    """Raise ResourceError where `files` of `source`, `times` their size once read, are more than `workspace` may hold.

    `times` is measured on real graphs, see data_prep/README.md.
    """
    require_bytes(str(source), sum(file.stat().st_size for file in files if file.is_file()), times, workspace)


def require_bytes(name: str, size: int, times: int, workspace: Workspace | None) -> None:
    """Raise ResourceError where `size` bytes, which messages call `name`, take more than `workspace` may hold."""
    if workspace is not None:
        advice = "allow more, or save edges and dense features as arrays of a generic .npz, which is read in pieces"
        step = f"{name}: reading {size:,} bytes of a format that is held whole"
        require(workspace.memory, times * size, step, advice)
