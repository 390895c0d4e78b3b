"""Reserving and writing a run folder: config, records of events, summary. Rank 0 alone writes them.

`leapmpi/runs/file_names.py` lists the files.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TextIO

from leapmpi.config.schema import Config
from leapmpi.config.toml import to_toml
from leapmpi.errors import RunFolderError
from leapmpi.runs.checkpoint_folder import CheckpointFolder
from leapmpi.runs.epoch_numbers import renumbered
from leapmpi.runs.file_names import CONFIG, HEARTBEATS_FILE, LOCK, LOG, METRICS, PATTERNS, SUMMARY
from leapmpi.runs.run import FAILED, FINISHED, METRICS_SCHEMA, SUMMARY_SCHEMA, Run
from leapmpi.runs.run_lock import RunLock
from leapmpi.system.atomic_files import explain, remove, take_free_name, written_aside
from leapmpi.system.regular_files import check_regular


class RunFolder:
    """A folder reserved for one run. `resumed`: it holds checkpoints, from which the run, finished or not, goes on."""

    def __init__(self, path: Path, resumed: bool = False) -> None:
        self.path = path
        self.resumed = resumed
        self._metrics: TextIO | None = None

    def open_log(self) -> TextIO:
        """Open the log for appending. Raises DataError or ResourceError where it cannot be written."""
        try:
            return _appending(self.path / LOG)
        except OSError as error:
            raise explain(error, self.path / LOG) from None

    def start(self, config: Config) -> None:
        """Write the resolved config, which marks the folder as a run's; open the metrics if they are not open yet."""
        if self._metrics is None:
            self.open_metrics()
        self.write_config(config, overwrite=self.resumed)

    def write_config(self, config: Config, overwrite: bool = True) -> None:
        """Write config.toml, in the place of an earlier one if `overwrite`."""
        with written_aside(self.path / CONFIG, overwrite=overwrite) as aside:
            aside.write_text(to_toml(config), encoding="utf-8")

    def open_metrics(self, size: int | None = None) -> bool:
        """Open metrics.jsonl for appending, cut back to its first `size` bytes if `size` is given.

        Returns False when the file was shorter than that: records are lost.
        """
        path = self.path / METRICS
        try:
            self._metrics = _appending(path)
            found = path.stat().st_size
            if size is not None and found > size:
                os.truncate(path, size)
        except OSError as error:
            raise explain(error, path) from None
        return size is None or found >= size

    def _opened(self) -> TextIO:
        """Return the file of the metrics, which `open_metrics` has opened."""
        assert self._metrics is not None
        return self._metrics

    def keep_metrics(self) -> int:
        """Flush metrics.jsonl to the disk; returns its size in bytes."""
        try:
            os.fsync(self._opened().fileno())
            return (self.path / METRICS).stat().st_size
        except OSError as error:
            raise explain(error, self.path / METRICS) from None

    def record(self, event: str, **values: Any) -> None:
        """Append one record to metrics.jsonl, flushed at once. `values` count epochs from 0, the file from 1."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"schema": METRICS_SCHEMA, "time": now, "event": event, **renumbered(values)})
        try:
            metrics = self._opened()
            metrics.write(line + "\n")
            metrics.flush()
        except OSError as error:
            raise explain(error, self.path / METRICS) from None

    def make_again(self, config: Config, epochs: Iterable[Mapping[str, Any]]) -> bool:
        """Make a vanished folder again, with its config and records of `epochs`; returns whether it had to be made."""
        if self.path.is_dir():
            return False
        try:
            self.path.mkdir(parents=True)
        except OSError as error:
            raise explain(error, self.path) from error
        self._opened().close()
        self._metrics = None
        self.start(config)
        for each in epochs:
            self.record("epoch", **each)
        return True

    def finish(self, summary: dict[str, Any], epochs: int = 0) -> None:
        """Write summary.json, which marks the run as finished, and remove what only an unfinished run needs.

        The checkpoint of the end of `epochs` is kept, if there is one.
        """
        self.record("end")
        self._opened().close()
        self.write_summary(summary)
        CheckpointFolder(self.path).keep_end(epochs)
        with suppress(OSError):
            (self.path / HEARTBEATS_FILE).unlink(missing_ok=True)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write summary.json of a finished run, in the place of an earlier one."""
        with written_aside(self.path / SUMMARY, overwrite=True) as aside:
            aside.write_text(_summary_text(FINISHED, summary), encoding="utf-8")


def record_failure(path: Path, why: str, status: str = FAILED, **where: Any) -> bool:
    """Write to summary.json in the run folder `path` that the run failed or was interrupted, and `why`.

    Any rank may call this; the first one writes. `where` holds rank, host, phase, epoch and iteration as far as known.
    Returns False, and changes nothing, when there is a summary already or nothing can be written.
    """
    aside = path / f".{SUMMARY}.partial-{socket.gethostname()}-{os.getpid()}"
    try:
        aside.write_text(_summary_text(status, {"why": why, **where}), encoding="utf-8")
        take_free_name(aside, path / SUMMARY)
    except OSError:
        return False
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
    return True


def forget_end(path: Path, resumes: bool = False) -> None:
    """Remove the summary of a start that failed, if there is one, so that the next start can write one.

    That of a finished run is removed only where it `resumes`.
    """
    if resumes or Run(path).failure is not None:
        (path / SUMMARY).unlink(missing_ok=True)


_OF_FILE = ("by_rank", "details")
"""Content of metrics.jsonl alone about an epoch, beside the losses."""


def drop_figures_of_file(record: dict[str, Any]) -> None:
    """Remove from the record of an epoch, once it is written, what is large and nobody reads while training goes on."""
    for name in _OF_FILE:
        record.pop(name, None)


def without_losses(epochs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Drop the losses of single batches, which only metrics.jsonl keeps, from records of epochs."""
    return [{key: value for key, value in epoch.items() if key not in ("losses", *_OF_FILE)} for epoch in epochs]


def _appending(path: Path) -> TextIO:
    """Open the file `path` for appending. Raises OSError for a pipe or a device, which might wait for ever."""
    with suppress(FileNotFoundError):
        check_regular(path, path)
    return path.open("a", encoding="utf-8")


def _summary_text(status: str, values: dict[str, Any]) -> str:
    return json.dumps({"schema": SUMMARY_SCHEMA, "status": status, **renumbered(values)}, indent=1) + "\n"


def check(folder: str, overwrite: bool, epochs: int = 0, replace: bool = False) -> bool:
    """Return whether `claim` would resume the run in `folder`; with `replace`, no run resumes.

    Raises RunFolderError if it would refuse. Changes nothing.
    """
    path = Path(folder or "runs")
    resumes = False
    try:
        if os.path.lexists(path) and not path.is_dir():
            raise RunFolderError(f"{path} is not a folder; choose another --run folder")
        if folder and path.is_dir() and any(path.iterdir()):
            resumes = _can_be_resumed(path, overwrite, epochs, replace)
        _check_writable(path)
    except OSError as error:
        raise RunFolderError(f"{path}: the run folder cannot be used ({error.strerror}); choose another") from None
    return resumes


def _check_writable(path: Path) -> None:
    """Raise RunFolderError when `path`, or a file in it where it exists, cannot be made."""
    nearest = path.absolute()
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    if not nearest.is_dir():
        raise RunFolderError(f"{path} cannot be made: {nearest} is not a folder; choose another --run folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise RunFolderError(f"{path}: not allowed to write in {nearest}; choose another --run folder")


def check_and_lock(folder: str, overwrite: bool, epochs: int, lock: RunLock, replace: bool = False) -> bool:
    """Check as `check`; if the folder exists, hold `lock` from then on, so that the result stays true.

    Raises RunFolderError where another start trains in it.
    """
    path = Path(folder or "runs")
    # Names that the system refuses are left to `check`.
    if folder and os.path.exists(path / LOCK):
        lock.take(path)
    resumes = check(folder, overwrite, epochs, replace)
    if folder and path.is_dir() and lock.folder is None:
        lock.take(path)
        resumes = check(folder, overwrite, epochs, replace)
    return resumes


def claim(
    folder: str,
    overwrite: bool,
    today: date | None = None,
    epochs: int = 0,
    lock: RunLock | None = None,
    resumes: bool | None = None,
    replace: bool = False,
) -> RunFolder:
    """Reserve a run folder: `folder`, or a new runs/DATE-N when empty. `lock` is held from here on.

    An unfinished run that has checkpoints is kept, to be resumed; so is a finished one of fewer than `epochs`.
    `overwrite` starts any unfinished run from its beginning, `replace` a finished one too. Raises RunFolderError when
    the folder holds another finished run, an unfinished one without checkpoints, or something else. It also does when
    another start trains there, or when resuming differs from `resumes`.
    """
    check(folder, overwrite, epochs, replace)
    path = Path(folder) if folder else _fresh(today or date.today())
    try:
        path.mkdir(parents=True, exist_ok=True)
        if lock is not None:
            lock.take(path)

        # Only what is found under the lock counts.
        resumed = check(folder, overwrite, epochs, replace)
        if resumes not in (None, resumed):
            raise RunFolderError(
                f"{path}: another start trained in this run folder while this one loaded; start again to go on from "
                "its last checkpoint, or choose another --run folder"
            )
        for file in [] if resumed else _files_of_run(path):
            if LOCK not in file.name:
                remove(file)
    except OSError as error:
        raise RunFolderError(f"{path}: the run folder cannot be made ({error.strerror}); choose another") from None
    return RunFolder(path, resumed)


def _files_of_run(path: Path) -> list[Path]:
    """List the files and folders of a run in `path`, config.toml first: while it exists, the folder is a run's."""
    return [file for pattern in PATTERNS for file in path.glob(pattern)]


def _can_be_resumed(path: Path, overwrite: bool, epochs: int, replace: bool) -> bool:
    """Return whether the run in `path` resumes from a checkpoint.

    Raises RunFolderError if the folder may not be used.
    """
    if Run(path).finished:
        return not replace and _resumes(path, overwrite, epochs)
    if not (path / CONFIG).exists():
        # A start that ended before its run began leaves files, but no config.
        if set(path.iterdir()) <= set(_files_of_run(path)):
            return False
        raise RunFolderError(f"{path} is not empty and holds no run; choose another --run folder")
    if overwrite:
        return False
    if CheckpointFolder(path).names():
        return True
    raise RunFolderError(
        f"{path} holds an unfinished run without a checkpoint; choose another --run folder, or pass --overwrite"
    )


def _resumes(path: Path, overwrite: bool, epochs: int) -> bool:
    """Return True if the finished run in `path` has done fewer than `epochs`. Raises RunFolderError for any other."""
    finished, done = f"{path} holds a finished run, which is never overwritten", CheckpointFolder(path).end()
    if overwrite:
        raise RunFolderError(f"{finished}; choose another --run folder, or leave out --overwrite to continue it")
    if not done:
        raise RunFolderError(
            f"{finished}, and no checkpoint of its end from which it could go on; choose another --run folder, where "
            f"--init {path} starts from its weights"
        )
    if epochs <= done:
        raise RunFolderError(
            f"{finished}; choose another --run folder, or continue it with more than its {done} --epochs"
        )
    return True


def _fresh(today: date) -> Path:
    """Make and return the first runs/DATE-N that does not exist."""
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
