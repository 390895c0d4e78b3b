"""Sources that are read whole: refused before they are, where memory does not suffice."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from data_prep.workspace import Workspace, require


def require_whole(source: Path, files: Iterable[Path], times: int, workspace: Workspace | None) -> None:
    """Raise ResourceError where `files` of `source`, `times` their size once read, are more than `workspace` may hold.

    `times` is measured on real graphs, see data_prep/README.md.
    """
    if workspace is not None:
        size = sum(file.stat().st_size for file in files if file.is_file())
        advice = "allow more, or save its arrays as a generic .npz, which is read in pieces"
        require(
            workspace.memory, times * size, f"{source}: reading {size:,} bytes of a format that is held whole", advice
        )
