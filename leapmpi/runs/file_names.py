"""The names of all files of a run folder."""

from __future__ import annotations

from pathlib import Path

CONFIG = "config.toml"
"""The resolved config. While it stands, the folder is a run's."""

METRICS = "metrics.jsonl"
"""One record per event."""

SUMMARY = "summary.json"
"""How the run ended. It marks the run as finished, unless it says that the run failed or was interrupted."""

LOG = "log.txt"

REPORT = "report.html"
"""The page about the run, where it was asked for without another name."""

WEIGHTS_FINAL, WEIGHTS_BEST = "weights-final.h5", "weights-best.h5"
"""The parameters of the last epoch, and of the epoch with the best validation score."""

CHECKPOINTS = "checkpoint"
"""Folder of the checkpoints (leapmpi/runs/checkpoint_folder.py): of an unfinished run, or of a finished one's end."""

HEARTBEATS_FILE = "ranks.stamps"
"""Where ranks note what they do, for others and for the next start (leapmpi/fault_tolerance/heartbeats.py)."""

LOCK = "run.lock"
"""Who trains in the folder, while somebody does (leapmpi/runs/run_lock.py)."""

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
"""Everything that runs leave in their folder, CONFIG first."""


def weights_file(which: str) -> str:
    """The weights of the `best` or the `final` epoch."""
    return f"weights-{which}.h5"


def failure_file(rank: int) -> str:
    """The traceback of a rank that failed."""
    return f"failure-rank-{rank}.txt"


def stuck_file(rank: int) -> str:
    """The stack of a rank in a job in which nothing moves."""
    return f"stuck-rank-{rank}.txt"


def timeline_file(rank: int) -> str:
    """What a rank did when, for ui.perfetto.dev."""
    return f"timeline-rank-{rank}.json"


def model_folder(path: Path, number: int) -> Path:
    """The folder of model `number` in the run folder `path` of several models."""
    return path / f"model-{number:02}"
