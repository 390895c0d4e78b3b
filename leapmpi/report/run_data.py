"""What the folder of one run tells, read once: settings, records, epochs, warnings. The run may still be training."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.errors import LeapmpiError, RunFolderError
from leapmpi.runs.file_names import LOG
from leapmpi.runs.run import FINISHED, Run, load_run
from leapmpi.runs.warm_epochs import warm_epochs

MOST_WARNINGS = 50
_LOG_BYTES = 4 << 20
"""Of a longer log, the end is searched for warnings."""

RUNNING = "running or killed"
"""The status of a run that has written no summary."""

SCORED = ("val", "test")


@dataclass(frozen=True)
class RunData:
    """One run. `label` tells it from the other runs of the page."""

    run: Run
    label: str
    records: Sequence[dict[str, Any]]
    ended: dict[str, Any]
    """summary.json; empty while there is none."""

    @classmethod
    def read(cls, folder: str | Path) -> RunData:
        """Read the run in `folder`. Raises RunFolderError where it is none, is damaged, or has recorded nothing."""
        run = load_run(folder)
        failed = run.failure
        ended = failed or (run.summary if run.finished else {})
        records = run.metrics()
        if not records:
            raise RunFolderError(f"{folder}: nothing is recorded in metrics.jsonl yet; wait for the first epoch")
        return cls(run, str(folder), records, ended)

    @cached_property
    def config(self) -> Config | None:
        """The settings; None where they cannot be read, as those of another version."""
        try:
            return self.run.config
        except LeapmpiError:
            return None

    @property
    def status(self) -> str:
        """finished, failed, interrupted, or RUNNING."""
        return self.ended.get("status", FINISHED) if self.ended else RUNNING

    @cached_property
    def epochs(self) -> list[dict[str, Any]]:
        """Records of epochs in order; of one that was recorded twice, the last."""
        found = {each["epoch"]: each for each in self.records if each["event"] == "epoch"}
        return [found[number] for number in sorted(found)]

    @cached_property
    def warm(self) -> Sequence[dict[str, Any]]:
        """Epochs by which speed is judged: all but those with which a start began, where there are others."""
        begun, position, seen = {0}, 0, set()
        for record in self.records:
            if record["event"] == "resumed":
                begun.add(position)
            if record["event"] == "epoch" and record["epoch"] not in seen:
                seen.add(record["epoch"])
                position += 1
        return warm_epochs(self.epochs, begun)[0]

    @property
    def epoch_seconds(self) -> float | None:
        """Median over warm epochs."""
        found = [each["seconds"] for each in self.warm if "seconds" in each]
        return statistics.median(found) if found else None

    def last(self, event: str) -> dict[str, Any]:
        """The last record of an event, empty where there is none."""
        return next((each for each in reversed(self.records) if each["event"] == event), {})

    def all(self, *events: str) -> list[dict[str, Any]]:
        """The records of some events, in order."""
        return [each for each in self.records if each["event"] in events]

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """What the banner says of each rank."""
        return [each for each in self.last("banner").get("ranks", []) if isinstance(each, dict)]

    @property
    def size(self) -> int:
        """The number of ranks, 1 where it is not recorded."""
        return len(self.ranks) or int(self.ended.get("ranks", 1))

    @property
    def metric(self) -> str:
        """The name of the metric; 'score' where it is not recorded."""
        named = self.config.evaluate.metric if self.config else "auto"
        return self.ended.get("metric") or ("score" if named == "auto" else named)

    @property
    def lower_is_better(self) -> bool:
        """Whether the metric is an error."""
        return self.metric in ("mse", "mae", "rmse")

    @property
    def scored(self) -> list[dict[str, Any]]:
        """Epochs with a validation score."""
        return [each for each in self.epochs if each.get("accuracy", {}).get("val") is not None]

    @property
    def best(self) -> dict[str, Any]:
        """`epoch`, `val` and `test` of the best epoch so far; empty before the first is scored."""
        if "best" in self.ended:
            return self.ended["best"]
        if not self.scored:
            return {}
        sign = 1 if self.lower_is_better else -1
        found = min(self.scored, key=lambda each: sign * each["accuracy"]["val"])
        return {"epoch": found["epoch"], **found["accuracy"]}

    @property
    def trivial(self) -> dict[str, Any]:
        """The scores of one answer for all, as the first record that was scored has them."""
        return next((each["trivial"] for each in self.epochs if "trivial" in each), {})

    @property
    def by_rank(self) -> dict[str, Any]:
        """Figures by rank of the last warm epoch that has them; empty where none are recorded."""
        return next((each["by_rank"] for each in reversed(self.warm) if "by_rank" in each), {})

    @property
    def details(self) -> dict[str, Any]:
        """Scores by class, degree and part of the best epoch that has them; empty where none are recorded."""
        best = self.best.get("epoch")
        found = {each["epoch"]: each["details"] for each in self.epochs if "details" in each}
        return found.get(best, {})

    def finished_at(self) -> np.ndarray:
        """float64[epochs]: seconds of training and evaluation up to the end of each epoch."""
        spent = [each.get("seconds", 0.0) + each.get("evaluation_seconds", 0.0) for each in self.epochs]
        return np.cumsum(np.array(spent, np.float64))

    def median(self, name: str) -> dict[str, float]:
        """Medians over warm epochs of the entries of a record's mapping `name`, such as bytes by kind."""
        found = [each[name] for each in self.warm if name in each]
        keys = dict.fromkeys(key for each in found for key in each)
        return {key: statistics.median(each.get(key, 0) for each in found) for key in keys}

    def phase_means(self) -> dict[str, float]:
        """Seconds by phase of an epoch: medians over warm epochs of the mean over ranks."""
        found = [each["phases"] for each in self.warm if "phases" in each]
        keys = dict.fromkeys(key for each in found for key in each)
        return {key: statistics.median(each.get(key, {"mean": 0.0})["mean"] for each in found) for key in keys}

    @cached_property
    def warnings(self) -> list[str]:
        """Lines of the log that warn, the last ones where there are many."""
        try:
            with (self.run.path / LOG).open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - _LOG_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return []
        return [line for line in text.splitlines() if " WARNING " in line or " ERROR " in line][-MOST_WARNINGS:]


def read_runs(folders: Sequence[str | Path]) -> list[RunData]:
    """Read all runs; of runs with the same folder name the whole path is the label. Raises RunFolderError."""
    found = [RunData.read(folder) for folder in folders]
    names = [Path(each.label).name or each.label for each in found]
    unique = len(set(names)) == len(names)
    return [
        RunData(each.run, name if unique else each.label, each.records, each.ended)
        for each, name in zip(found, names, strict=True)
    ]
