"""Contents of a run folder, read once: settings, records, epochs, warnings. The run may still be training."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.config.schema import Config, model_names
from leapmpi.errors import LeapmpiError, RunFolderError, counted
from leapmpi.runs.file_names import LOG
from leapmpi.runs.run import ERRORS, FINISHED, Run, load_run
from leapmpi.runs.warm_epochs import warm_epochs

MOST_WARNINGS = 50
_LOG_BYTES = 4 << 20
"""Bytes at the end of the log that are searched for warnings."""

RUNNING = "running or killed"
"""Status of a run without a summary."""

SCORED = ("val", "test")

_WORK = ("plan", "sample", "compute", "gather")
"""Phases of a rank's own work, as opposed to waiting for others."""


@dataclass(frozen=True)
class RunData:
    """One run of a page. `label` distinguishes it from the others."""

    run: Run
    label: str
    records: Sequence[dict[str, Any]]
    ended: dict[str, Any]
    """Contents of summary.json; empty while there is none."""

    @classmethod
    def read(cls, folder: str | Path) -> RunData:
        """Read the run in `folder`. Raises RunFolderError if it is not a run, is damaged, or has no records."""
        run = load_run(folder)
        failed = run.failure
        ended = failed or (run.summary if run.finished else {})
        records = run.metrics()
        if not records:
            raise RunFolderError(f"{folder}: metrics.jsonl is still empty; wait for the first epoch")
        return cls(run, str(folder), records, ended)

    @cached_property
    def config(self) -> Config | None:
        """Settings; None if they cannot be read, as those of another version."""
        try:
            return self.run.config
        except LeapmpiError:
            return None

    @property
    def status(self) -> str:
        """Status: finished, failed, interrupted, or RUNNING."""
        return self.ended.get("status", FINISHED) if self.ended else RUNNING

    @cached_property
    def epochs(self) -> list[dict[str, Any]]:
        """Records of epochs in order; the last record of an epoch counts."""
        found = {each["epoch"]: each for each in self.records if each["event"] == "epoch"}
        return [found[number] for number in sorted(found)]

    @property
    def warm(self) -> Sequence[dict[str, Any]]:
        """Epochs that speed is judged by: all but the first after each start, unless there are no others."""
        return self._judged[0]

    @property
    def only_cold(self) -> bool:
        """Whether there are only first epochs after a start."""
        return not self._judged[1]

    @cached_property
    def _judged(self) -> tuple[Sequence[dict[str, Any]], bool]:
        # A resumed epoch may be recorded twice; count each epoch once.
        begun, position, seen = {0}, 0, set()
        for record in self.records:
            if record["event"] == "resumed":
                begun.add(position)
            if record["event"] == "epoch" and record["epoch"] not in seen:
                seen.add(record["epoch"])
                position += 1
        return warm_epochs(self.epochs, begun)

    @property
    def epoch_seconds(self) -> float | None:
        """Median seconds of warm epochs."""
        found = [each["seconds"] for each in self.warm if "seconds" in each]
        return statistics.median(found) if found else None

    def last(self, event: str) -> dict[str, Any]:
        """Return the last record of an event; empty if there is none."""
        return next((each for each in reversed(self.records) if each["event"] == event), {})

    def all(self, *events: str) -> list[dict[str, Any]]:
        """Return the records of some events, in order."""
        return [each for each in self.records if each["event"] in events]

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """Facts about each rank, from the banner."""
        return [each for each in self.last("banner").get("ranks", []) if isinstance(each, dict)]

    @property
    def size(self) -> int:
        """Number of ranks; 1 if it is not recorded."""
        return len(self.ranks) or int(self.ended.get("ranks", 1))

    @property
    def about(self) -> str:
        """Model, data and ranks, such as 'sage on cora, 4 ranks'."""
        model = self.ended.get("model") or (model_names(self.config) if self.config else "")
        data = Path(self.config.data).name if self.config else ""
        named = " on ".join(filter(None, [model, data]))
        return ", ".join(filter(None, [named, counted(self.size, "rank")]))

    @property
    def metric(self) -> str:
        """Name of the metric; 'score' if it is not recorded."""
        named = self.config.evaluate.metric if self.config else "auto"
        recorded = self.ended.get("metric") or self.last("banner").get("metric")
        return recorded or ("score" if named == "auto" else named)

    @property
    def lower_is_better(self) -> bool:
        """Whether the metric is an error."""
        return self.metric in ERRORS

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
    def exact(self) -> dict[str, Any]:
        """Scores of the best weights by split from all neighbours; empty if they were not computed."""
        return self.ended.get("exact") or {}

    @property
    def sampled(self) -> bool:
        """Whether the scores of epochs are those of sampled neighbourhoods."""
        return self.config is not None and self.config.evaluation_samples

    @property
    def trivial(self) -> dict[str, Any]:
        """Scores of the constant baseline by split and its name, from the first scored epoch."""
        return next((each["trivial"] for each in self.epochs if "trivial" in each), {})

    @property
    def by_rank(self) -> dict[str, Any]:
        """Figures by rank of the last warm epoch that has them; empty if none are recorded."""
        return next((each["by_rank"] for each in reversed(self.warm) if "by_rank" in each), {})

    @property
    def imbalance(self) -> float | None:
        """Seconds of work of the busiest rank over the mean, waiting excluded; None if not recorded."""
        phases = self.by_rank.get("phases")
        if not phases:
            return None
        busy = [sum(each) for each in zip(*(phases[name] for name in phases if name in _WORK), strict=True)]
        return max(busy) / (sum(busy) / len(busy)) if sum(busy) else None

    @property
    def details(self) -> dict[str, Any]:
        """Scores by class, degree and part of the best epoch; empty if none are recorded."""
        best = self.best.get("epoch")
        found = {each["epoch"]: each["details"] for each in self.epochs if "details" in each}
        return found.get(best, {})

    def finished_at(self) -> np.ndarray:
        """Return float64[epochs]: seconds of training and evaluation up to the end of each epoch."""
        spent = [each.get("seconds", 0.0) + each.get("evaluation_seconds", 0.0) for each in self.epochs]
        return np.cumsum(np.array(spent, np.float64))

    def median(self, name: str) -> dict[str, float]:
        """Return medians over warm epochs of the mapping `name` of a record, such as bytes by kind."""
        found = [each[name] for each in self.warm if name in each]
        keys = dict.fromkeys(key for each in found for key in each)
        return {key: statistics.median(each.get(key, 0) for each in found) for key in keys}

    def phase_means(self) -> dict[str, float]:
        """Return seconds of an epoch by phase: medians over warm epochs of the mean over ranks."""
        found = [each["phases"] for each in self.warm if "phases" in each]
        keys = dict.fromkeys(key for each in found for key in each)
        return {key: statistics.median(each.get(key, {"mean": 0.0})["mean"] for each in found) for key in keys}

    @cached_property
    def warnings(self) -> list[str]:
        """Last warnings and errors of the log, at most MOST_WARNINGS."""
        try:
            with (self.run.path / LOG).open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - _LOG_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return []
        return [line for line in text.splitlines() if " WARNING " in line or " ERROR " in line][-MOST_WARNINGS:]


def read_runs(folders: Sequence[str | Path]) -> tuple[list[RunData], list[RunFolderError]]:
    """Read all runs; return them, and the errors of those that cannot be read.

    Runs with equal folder names are labelled by path. Raises the first error if no run can be read.
    """
    found, left_out = [], []
    for folder in folders:
        try:
            found.append(RunData.read(folder))
        except RunFolderError as error:
            left_out.append(error)
    if not found:
        raise left_out[0]
    names = [Path(each.label).name or each.label for each in found]
    unique = len(set(names)) == len(names)
    labels = [name if unique else each.label for each, name in zip(found, names, strict=True)]
    return [replace(each, label=f"{label} ({each.about})") for each, label in zip(found, labels, strict=True)], left_out
