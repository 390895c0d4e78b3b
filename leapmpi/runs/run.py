"""A run folder, read: its config, summary, metrics and weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leapmpi.config.schema import Config
from leapmpi.config.toml import read_toml
from leapmpi.errors import RunFolderError

if TYPE_CHECKING:
    import numpy as np

SUMMARY_SCHEMA = 1
"""Version of what summary.json holds."""

SUMMARY = "summary.json"
FINISHED, FAILED, INTERRUPTED = "finished", "failed", "interrupted"
"""What summary.json calls `status`."""


def model_folder(path: Path, number: int) -> Path:
    """The folder of model `number` in the run folder `path` of several models."""
    return path / f"model-{number:02}"


@dataclass(frozen=True)
class Run:
    """The run in folder `path`."""

    path: Path

    @cached_property
    def config(self) -> Config:
        """The config the run was given, resolved."""
        path = self.path / "config.toml"
        return Config.from_values(read_toml(path), str(path))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """summary.json. Raises RunFolderError when the run is not finished or the file is damaged."""
        found = self._read_summary()
        if (status := found.get("status")) in (FAILED, INTERRUPTED):
            ended = "failed" if status == FAILED else "was interrupted"
            raise RunFolderError(f"{self.path} holds no finished run: it {ended}: {found.get('why')}")
        return found

    def models(self) -> list[Run]:
        """The runs of the models that differ and were trained together in this one; empty for a run of one model."""
        return [Run(model_folder(self.path, number)) for number in range(len(self.summary.get("models", [])))]

    @property
    def failure(self) -> dict[str, Any] | None:
        """What summary.json says of a run that failed or was interrupted: `status`, `why`, and `rank`, `host`,
        `phase`, `epoch` and `iteration` where known; None for any other run."""
        try:
            found = self._read_summary()
        except RunFolderError:
            return None
        return found if found.get("status") in (FAILED, INTERRUPTED) else None

    @property
    def finished(self) -> bool:
        """Whether the run came to its end. A summary that cannot be read counts as one: it is never overwritten."""
        return (self.path / SUMMARY).exists() and self.failure is None

    def _read_summary(self) -> dict[str, Any]:
        path = self.path / SUMMARY
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunFolderError(f"{self.path} holds no finished run: it has no summary.json") from None
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be read ({error.strerror})") from None
        except (ValueError, RecursionError) as error:
            raise RunFolderError(f"{path}: the file is damaged ({error}); run it again") from None
        schema = found.get("schema") if isinstance(found, dict) else None
        if schema != SUMMARY_SCHEMA:
            raise RunFolderError(
                f"{path} has schema {schema}, but this leapmpi reads {SUMMARY_SCHEMA}; use the leapmpi that wrote it"
            )
        return found

    def metrics(self) -> list[dict[str, Any]]:
        """All records of metrics.jsonl, oldest first; a last line cut short by a crash is left out."""
        path, records = self.path / "metrics.jsonl", []
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise RunFolderError(f"{path}: cannot be read ({error})") from None
        for number, line in enumerate(lines):
            try:
                records.append(json.loads(line))
            except ValueError:
                if number + 1 < len(lines):
                    raise RunFolderError(f"{path}: line {number + 1} is damaged") from None
        return records

    def weights(self, which: str = "best") -> dict[str, np.ndarray]:
        """The parameters by name, of the `best` or the `final` epoch. Raises DataError when missing or damaged."""
        from leapmpi.runs.weights import read_weights

        return read_weights(self.path / f"weights-{which}.h5")[0]


def load_run(path: Path | str) -> Run:
    """The run in folder `path`. Raises RunFolderError when there is none."""
    path = Path(path)
    try:
        (path / "config.toml").stat()
    except (FileNotFoundError, NotADirectoryError):
        raise RunFolderError(f"{path} is no run folder: it has no config.toml") from None
    except OSError as error:
        raise RunFolderError(f"{path}: the run folder cannot be read ({error.strerror})") from None
    return Run(path)
