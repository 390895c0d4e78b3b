"""Reader of a run folder: its config, summary, metrics and weights."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from leapmpi.config.plain_values import Schema, anything, count, parsed, record
from leapmpi.config.schema import Config
from leapmpi.config.toml import read_toml
from leapmpi.errors import RunFolderError
from leapmpi.runs import schemas
from leapmpi.runs.epoch_numbers import up_to_date
from leapmpi.runs.file_names import CONFIG, METRICS, SUMMARY, model_folder, weights_file
from leapmpi.system.regular_files import read_text

if TYPE_CHECKING:
    import numpy as np

SUMMARY_SCHEMA = 2
"""Version of summary.json."""

METRICS_SCHEMA = 2
"""Version of the records in metrics.jsonl."""

ERRORS = ("mse", "mae", "rmse")
"""Metrics that are errors: lower is better."""

FINISHED, FAILED, INTERRUPTED = "finished", "failed", "interrupted"
"""Values of `status` in summary.json."""


@dataclass(frozen=True)
class Run:
    """The run in folder `path`. `leapmpi.train` and `leapmpi.load_run` return a TrainedRun, which offers more.

    Files are read on first use: `config`, `summary`, `finished`, `failure`, `metrics()`, `weights()` and `models()`.
    README.md, "From Python", shows examples.
    """

    path: Path

    @cached_property
    def config(self) -> Config:
        """The resolved config of the run. Raises ConfigError if it cannot be read."""
        path = self.path / CONFIG
        return Config.recorded(read_toml(path, regular=True), str(path))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Contents of summary.json, epochs from 1. Raises RunFolderError if the run is not finished or damaged."""
        found = self._read_summary()
        if (status := found.get("status")) == INTERRUPTED:
            raise RunFolderError(f"{self.path} was interrupted; {self.resume_command} continues it")
        if status == FAILED:
            raise RunFolderError(
                f"{self.path} failed: {found.get('why')}; correct the cause, then {self.resume_command} continues it"
            )
        return found

    @property
    def resume_command(self) -> str:
        """The command that goes on with this run, on one rank or behind mpirun."""
        return f"leapmpi train --run {shlex.quote(str(self.path))}"

    def models_so_far(self) -> list[Self]:
        """Return one Run per model of a run of several models, finished or not, that has weights already."""
        if self.finished:
            return self.models()
        folders = itertools.takewhile(Path.is_dir, (model_folder(self.path, number) for number in itertools.count()))
        return [type(self)(folder) for folder in folders]

    def models(self) -> list[Self]:
        """Return one Run per model of a run of several models; an empty list for a run of one model.

        Raises RunFolderError as `summary` does.
        """
        return [type(self)(model_folder(self.path, number)) for number in range(len(self.summary.get("models", [])))]

    @property
    def failure(self) -> dict[str, Any] | None:
        """Contents of summary.json of a failed or interrupted run; None for any other run.

        Holds `status` and `why`, and `rank`, `host`, `phase`, `epoch` and `iteration` if known.
        """
        try:
            found = self._read_summary()
        except RunFolderError:
            return None
        return found if found.get("status") in (FAILED, INTERRUPTED) else None

    @property
    def finished(self) -> bool:
        """Whether the run ended as planned.

        A run with an unreadable summary counts, so that it is never overwritten.
        """
        return os.path.exists(self.path / SUMMARY) and self.failure is None

    def _read_summary(self) -> dict[str, Any]:
        path = self.path / SUMMARY
        try:
            found = parsed(read_text(path), record({"schema": count}))
            # An unknown schema is not damage: another version of leapmpi reads it.
            if (schema := found["schema"]) not in range(1, SUMMARY_SCHEMA + 1):
                raise RunFolderError(
                    f"{path} has schema {schema}, but this leapmpi reads those up to {SUMMARY_SCHEMA}; use the leapmpi "
                    "that wrote it"
                )
            # A run that failed or was stopped has fields of its own.
            schemas.SUMMARY(found, "")
            if found.get("status") in (FAILED, INTERRUPTED):
                schemas.EARLY_END(found, "")
        except FileNotFoundError:
            raise RunFolderError(
                f"{self.path} has not finished (no summary.json); if it does not run, {self.resume_command} goes on "
                "with it"
            ) from None
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be read ({error.strerror})") from None
        except ValueError as error:
            raise RunFolderError(f"{path}: the file is damaged ({error}); run it again") from None
        return up_to_date(found, SUMMARY_SCHEMA)

    def metrics(self) -> list[dict[str, Any]]:
        """Return all records of metrics.jsonl, oldest first, epochs from 1, without a last line cut short by a crash.

        `event` is the kind of a record: start, banner, decision, epoch, interrupted, resumed, end. Records of a running
        or failed run can be read too. Raises RunFolderError for a file that is missing or damaged.
        """
        path = self.path / METRICS
        records: list[dict[str, Any]] = []
        try:
            lines = read_text(path).splitlines()
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be read ({error.strerror})") from None
        except UnicodeDecodeError as error:
            raise RunFolderError(f"{path}: the file is damaged (not UTF-8 text: {error}); run it again") from None
        for number, line in enumerate(lines):
            try:
                records.append(_event(line))
            except ValueError as error:
                # The last line may be cut short by a crash; any other damage is an error.
                if number + 1 < len(lines):
                    raise RunFolderError(f"{path}: line {number + 1} is damaged ({error}); run it again") from None
        return records

    def weights(self, which: str = "best") -> dict[str, np.ndarray]:
        """Return the parameters by name, of the `best` or the `final` epoch, in the dtype of training.

        Raises DataError if they are missing or damaged.
        """
        from leapmpi.runs.weights import read_weights

        return read_weights(self.path / weights_file(which))[0]


def require(value: Any, schema: Schema, path: Path) -> None:
    """Raise RunFolderError unless `value`, read from the file `path` of a run, fits `schema`."""
    try:
        schema(value, "")
    except ValueError as error:
        raise RunFolderError(f"{path}: the file is damaged ({error}); run it again") from None


def _event(line: str) -> dict[str, Any]:
    """Parse one line of metrics.jsonl. Raises ValueError with the reason if it is damaged."""
    found = parsed(line, schemas.EVENT)
    schemas.EVENTS.get(found["event"], anything)(found, "")
    if found["event"] == "decision":
        schemas.DECISIONS.get(found["about"], anything)(found["value"], "value")
    return up_to_date(found, METRICS_SCHEMA)


def run_folders(paths: Iterable[Path | str]) -> list[Path]:
    """Return `paths` with folders of runs, such as that of a sweep, replaced by the runs in them, by name."""
    found: list[Path] = []
    for path in map(Path, paths):
        runs = [] if (path / CONFIG).exists() else sorted(each.parent for each in path.glob(f"*/{CONFIG}"))
        found += runs or [path]
    return found


def _why_no_run(path: Path) -> str:
    """Return what is wrong with a path that is not a run folder."""
    if not path.exists():
        return "does not exist; leapmpi train makes a run folder"
    if path.suffix == ".h5" or (path / "dataset.h5").exists():
        return f"is a dataset, not a run folder; leapmpi-prep report {shlex.quote(str(path))} writes a page about it"
    return f"is not a run folder: it has no {CONFIG}"


def load_run(path: Path | str) -> Run:
    """Return the run in folder `path`. Raises RunFolderError if there is none."""
    path = Path(path)
    try:
        (path / CONFIG).stat()
    except (FileNotFoundError, NotADirectoryError):
        raise RunFolderError(f"{path} {_why_no_run(path)}") from None
    except OSError as error:
        raise RunFolderError(f"{path}: the run folder cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise RunFolderError(f"{str(path)!r}: the run folder cannot be read ({error})") from None
    return Run(path)
