"""What a partitioner is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from data_prep.progress import SILENT, Progress


@dataclass(frozen=True)
class PartitionRequest:
    """How to cut a graph. A partitioner that cannot use a field ignores it."""

    parts: int
    seed: int
    tolerance: float = 1.05
    """The largest part may have this many times the mean number of vertices, and of training vertices."""
    memory: int | None = None
    """Bytes that the process may use, its interpreter included; None: whatever the machine has."""
    chunk: float = 0.1
    """Share of the graph's edges that a streaming method holds at once."""
    threads: int = 1
    """Threads for methods that have them; the result does not depend on their number."""
    progress: Progress = SILENT
    """Told of passes over the edges."""
