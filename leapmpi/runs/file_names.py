"""Names of all files of a run folder."""

from __future__ import annotations

from pathlib import Path

CONFIG = "config.toml"
"""The resolved config. Its presence marks the folder as a run's."""

METRICS = "metrics.jsonl"
"""One record per event."""

SUMMARY = "summary.json"
"""Outcome of the run. It marks the run as finished, unless its status is failed or interrupted."""

LOG = "log.txt"

REPORT = "report.html"
"""The report about the run, under its default name."""

WEIGHTS_FINAL, WEIGHTS_BEST = "weights-final.h5", "weights-best.h5"
"""Parameters of the last epoch, and of the epoch with the best validation score."""

CHECKPOINTS = "checkpoint"
"""Folder of the checkpoints (leapmpi/runs/checkpoint_folder.py)."""

HEARTBEATS_FILE = "ranks.stamps"
"""Activity of each rank, for other ranks and the next start (leapmpi/fault_tolerance/heartbeats.py)."""

LOCK = "run.lock"
"""The lock of the start that trains in the folder (leapmpi/runs/run_lock.py)."""

PATTERNS = (
    CONFIG,
    CHECKPOINTS,
    METRICS,
    SUMMARY,
    LOG,
    REPORT,
    WEIGHTS_FINAL,
    WEIGHTS_BEST,
    "failure-rank-*.txt",
    "model-[0-9]*",
    "timeline-rank-*.json",
    "stuck-rank-*.txt",
    HEARTBEATS_FILE,
    LOCK,
    ".*.partial-*",
)
"""All files that runs leave in their folder, CONFIG first."""


def weights_file(which: str) -> str:
    """Return the file of the weights of the `best` or the `final` epoch."""
    return f"weights-{which}.h5"


def failure_file(rank: int) -> str:
    """Return the file of the traceback of a failed rank."""
    return f"failure-rank-{rank}.txt"


def stuck_file(rank: int) -> str:
    """Return the file of a rank's stacks in a stalled job."""
    return f"stuck-rank-{rank}.txt"


def timeline_file(rank: int) -> str:
    """Return the file of a rank's timeline, for ui.perfetto.dev."""
    return f"timeline-rank-{rank}.json"


def model_folder(path: Path, number: int) -> Path:
    """Return the folder of model `number` in the run folder `path` of several models."""
    return path / f"model-{number:02}"
