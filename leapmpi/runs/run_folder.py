"""The run folder: what a run was told, what happened, and what came out. Rank 0 alone writes it.

config.toml, metrics.jsonl (one record per event), summary.json, log.txt, weights-final.h5, weights-best.h5; while it
is unfinished, checkpoint/.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from leapmpi.config.schema import Config
from leapmpi.config.toml import to_toml
from leapmpi.errors import RunFolderError
from leapmpi.runs.checkpoint_folder import FOLDER, CheckpointFolder
from leapmpi.runs.run import FAILED, FINISHED, SUMMARY, SUMMARY_SCHEMA, Run
from leapmpi.system.atomic_files import explain, remove, written_aside

METRICS_SCHEMA = 1
WEIGHTS_FINAL, WEIGHTS_BEST = "weights-final.h5", "weights-best.h5"
HEARTBEATS_FILE = "ranks.stamps"
"""Where ranks note what they do, for others and for the next start (leapmpi/fault_tolerance/heartbeats.py)."""

_OURS = (
    *("config.toml", FOLDER, "metrics.jsonl", SUMMARY, "log.txt", WEIGHTS_FINAL, WEIGHTS_BEST, "failure-rank-*.txt"),
    *("model-[0-9]*", "timeline-rank-*.json", "stuck-rank-*.txt", HEARTBEATS_FILE, ".*.partial-*"),
)


class RunFolder:
    """A folder reserved for one run; `resumed` when it holds checkpoints of an earlier start, to go on from."""

    def __init__(self, path: Path, resumed: bool = False) -> None:
        self.path = path
        self.resumed = resumed
        self._metrics: Any = None

    @property
    def log(self) -> Path:
        """Where the log goes."""
        return self.path / "log.txt"

    def start(self, config: Config) -> None:
        """Write the resolved config, which marks the folder as a run's, and open the metrics unless they are."""
        if self._metrics is None:
            self.open_metrics()
        with written_aside(self.path / "config.toml", overwrite=self.resumed) as aside:
            aside.write_text(to_toml(config), encoding="utf-8")

    def open_metrics(self, size: int | None = None) -> bool:
        """Open metrics.jsonl to append to it, cut back to its first `size` bytes if given.

        Returns False when it was shorter than that: records are lost.
        """
        path = self.path / "metrics.jsonl"
        try:
            self._metrics = path.open("a", encoding="utf-8")
            there = path.stat().st_size
            if size is not None and there > size:
                os.truncate(path, size)
        except OSError as error:
            raise explain(error, path) from None
        return size is None or there >= size

    def keep_metrics(self) -> int:
        """Make sure that metrics.jsonl is on the disk; returns its size in bytes."""
        try:
            os.fsync(self._metrics.fileno())
            return (self.path / "metrics.jsonl").stat().st_size
        except OSError as error:
            raise explain(error, self.path / "metrics.jsonl") from None

    def record(self, event: str, **values: Any) -> None:
        """Append one record to metrics.jsonl, flushed at once."""
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"schema": METRICS_SCHEMA, "time": stamp, "event": event, **values})
        try:
            self._metrics.write(line + "\n")
            self._metrics.flush()
        except OSError as error:
            raise explain(error, self.path / "metrics.jsonl") from None

    def finish(self, summary: dict[str, Any]) -> None:
        """Write summary.json, which marks the run as finished."""
        self.record("end")
        self._metrics.close()
        with written_aside(self.path / SUMMARY, overwrite=True) as aside:
            aside.write_text(_summary_text(FINISHED, summary), encoding="utf-8")
        CheckpointFolder(self.path).drop()
        with suppress(OSError):
            (self.path / HEARTBEATS_FILE).unlink(missing_ok=True)


def record_failure(path: Path, why: str, status: str = FAILED, **where: Any) -> bool:
    """Write to summary.json of the run folder `path` that the run failed or was interrupted, and `why`; any rank may.

    `where` holds rank, host, phase, epoch and iteration as far as known. The first word stands: returns False, and
    changes nothing, when there is a summary already or nothing can be written.
    """
    aside = path / f".{SUMMARY}.partial-{socket.gethostname()}-{os.getpid()}"
    try:
        aside.write_text(_summary_text(status, {"why": why, **where}), encoding="utf-8")
        # Unlike a rename, a link fails where another rank was first.
        os.link(aside, path / SUMMARY)
    except OSError:
        return False
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
    return True


def forget_failure(path: Path) -> None:
    """Remove the summary of a start that failed, if there is one, so that the next start can write its own."""
    if Run(path).failure is not None:
        (path / SUMMARY).unlink(missing_ok=True)


def _summary_text(status: str, values: dict[str, Any]) -> str:
    return json.dumps({"schema": SUMMARY_SCHEMA, "status": status, **values}, indent=1) + "\n"


def check(folder: str, overwrite: bool) -> bool:
    """Whether `claim` would resume the run in `folder`. Raises RunFolderError when it would refuse. Changes nothing."""
    path, resumes = Path(folder or "runs"), False
    try:
        if os.path.lexists(path) and not path.is_dir():
            raise RunFolderError(f"{path} is not a folder; choose another --run folder")
        if folder and path.is_dir() and any(path.iterdir()):
            resumes = _can_be_resumed(path, overwrite)
        _check_writable(path)
    except OSError as error:
        raise RunFolderError(f"{path}: the run folder cannot be used ({error.strerror}); choose another") from None
    return resumes


def _check_writable(path: Path) -> None:
    """Raise RunFolderError when nothing can be made at `path`, or in it where it stands already."""
    there = path.absolute()
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        raise RunFolderError(f"{path} cannot be made: {there} is not a folder; choose another --run folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise RunFolderError(f"{path}: not allowed to write in {there}; choose another --run folder")


def claim(folder: str, overwrite: bool, today: date | None = None) -> RunFolder:
    """Reserve a run folder: `folder`, or a fresh runs/DATE-N when empty.

    An unfinished run that has checkpoints is kept, to be resumed. Raises RunFolderError when the folder holds a
    finished run, an unfinished one without checkpoints, or something else; `overwrite` starts any unfinished run anew.
    """
    if check(folder, overwrite):
        return RunFolder(Path(folder), resumed=True)
    if not folder:
        return RunFolder(_fresh(today or date.today()))
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        for file in _ours(path):
            remove(file)
    except OSError as error:
        raise RunFolderError(f"{path}: the run folder cannot be made ({error.strerror}); choose another") from None
    return RunFolder(path)


def _ours(path: Path) -> list[Path]:
    """The files and folders of a run in `path`, config.toml first: while it stands, this is a run."""
    return [file for pattern in _OURS for file in path.glob(pattern)]


def _can_be_resumed(path: Path, overwrite: bool) -> bool:
    if Run(path).finished:
        raise RunFolderError(f"{path} holds a finished run, which is never overwritten; choose another --run folder")
    if not (path / "config.toml").exists():
        # A start that was ended before its run began leaves files, but no config.
        if set(path.iterdir()) <= set(_ours(path)):
            return False
        raise RunFolderError(f"{path} is not empty and holds no run; choose another --run folder")
    if overwrite:
        return False
    if CheckpointFolder(path).names():
        return True
    raise RunFolderError(
        f"{path} holds an unfinished run without a checkpoint; choose another --run folder, or pass --overwrite"
    )


def _fresh(today: date) -> Path:
    for number in range(1, 100_000):
        path = Path("runs") / f"{today.isoformat()}-{number}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunFolderError(f"{path}: the run folder cannot be made ({error.strerror}); pass --run") from None
        return path
    raise RunFolderError("runs/ is full; pass --run FOLDER")
