"""A run folder, read: its config, summary, metrics and weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leapmpi.config import Config, read_toml
from leapmpi.errors import RunFolderError

if TYPE_CHECKING:
    import numpy as np


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
        path = self.path / "summary.json"
        if not path.is_file():
            raise RunFolderError(f"{self.path} holds no finished run: it has no summary.json")
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path}: cannot be read ({error}); the file is damaged") from None

    def metrics(self) -> list[dict[str, Any]]:
        """All records of metrics.jsonl, oldest first; a last line cut short by a crash is left out."""
        lines = (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        records = []
        for number, line in enumerate(lines):
            try:
                records.append(json.loads(line))
            except ValueError:
                if number + 1 < len(lines):
                    raise RunFolderError(f"{self.path / 'metrics.jsonl'}: line {number + 1} is damaged") from None
        return records

    def weights(self, which: str = "best") -> dict[str, np.ndarray]:
        """The parameters by name, of the `best` or the `final` epoch. Raises DataError when missing or damaged."""
        from leapmpi.training.parameters import read_weights

        return read_weights(self.path / f"weights-{which}.h5")[0]


def load_run(path: Path | str) -> Run:
    """The run in folder `path`. Raises RunFolderError when there is none."""
    path = Path(path)
    if not (path / "config.toml").is_file():
        raise RunFolderError(f"{path} is no run folder: it has no config.toml")
    return Run(path)
