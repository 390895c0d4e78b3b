"""Series for trackers: settings, and numbers by epoch, from `config.toml`, `metrics.jsonl` and `summary.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from leapmpi.errors import RunFolderError
from leapmpi.runs.run import FINISHED, Run

RUNNING = "running"
"""Status of a run without summary.json: it is running, or was killed."""

_FIGURES = ("loss", "seconds", "core_seconds", "evaluation_seconds", "lr", "time_steps")
_SPLITS = ("val", "test")


class Point(NamedTuple):
    """Number of an epoch: the record's time in seconds since 1970, the epoch from 1, name and value."""

    time: float
    epoch: int
    name: str
    value: float


@dataclass(frozen=True)
class RunSeries:
    """Run as series of numbers. Raises RunFolderError if its records cannot be read, or there are none yet."""

    run: Run

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """All records of the run, without a last line that is still being written."""
        found = self.run.metrics()
        if not found:
            raise RunFolderError(f"{self.run.path} holds no records yet; export it after its start")
        return found

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return self.run.path.absolute().name

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Contents of summary.json, also of a failed or interrupted run; empty while the run is going on."""
        if failure := self.run.failure:
            return failure
        return self.run.summary if self.run.finished else {}

    @property
    def status(self) -> str:
        """Status: finished, failed, interrupted or running."""
        return str(self.summary.get("status", FINISHED)) if self.summary else RUNNING

    @property
    def begun(self) -> float:
        """Time of the first record, in seconds since 1970."""
        return _seconds(self.records[0])

    @property
    def ended(self) -> float | None:
        """Time of the last record; None while the run is going on."""
        return None if self.status == RUNNING else _seconds(self.records[-1])

    def settings(self) -> dict[str, str]:
        """Return every setting of the run as text, by dotted key."""
        found: dict[str, str] = {}
        for section, values in self.run.config.to_values().items():
            entries = {f"{section}.{key}": value for key, value in values.items()} if isinstance(values, dict) else {}
            found |= {key: _text(value) for key, value in (entries or {section: values}).items()}
        return found

    def facts(self) -> dict[str, str]:
        """Return facts about the run: version, status, identity of the data, number of ranks."""
        start = next((each for each in self.records if each["event"] == "start"), {})
        banner: dict[str, Any] = next((each for each in reversed(self.records) if each["event"] == "banner"), {})
        found = {
            "leapmpi.version": start.get("version", self.summary.get("version")),
            "leapmpi.status": self.status,
            "leapmpi.why": self.summary.get("why"),
            "leapmpi.ranks": len(banner["ranks"]) if banner else None,
            "leapmpi.dataset": banner.get("uuid"),
            "leapmpi.metric": self.summary.get("metric"),
            "leapmpi.parameters_digest": self.summary.get("parameters_digest"),
        }
        return {name: str(value) for name, value in found.items() if value is not None}

    def points(self) -> Iterator[Point]:
        """Yield the numbers of each epoch, in the order of their records."""
        for record in self.records:
            if record["event"] == "epoch":
                time, epoch = _seconds(record), record["epoch"]
                for name, value in _numbers(record):
                    yield Point(time, epoch, name, float(value))

    def best(self) -> dict[str, float]:
        """Return the best epoch and its scores, if the run has ended."""
        found = self.summary.get("best") or {}
        return {f"best/{name}": float(value) for name, value in found.items() if value is not None}


def _seconds(record: Mapping[str, Any]) -> float:
    try:
        return datetime.fromisoformat(record["time"]).timestamp()
    except (KeyError, TypeError, ValueError):
        raise RunFolderError(f"a record of metrics.jsonl ({record['event']}) has no time; train again") from None


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _numbers(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield names and values of the record of an epoch."""
    for name in _FIGURES:
        if record.get(name) is not None:
            yield name, record[name]
    yield from _scores("score", record.get("accuracy", {}))
    for name, times in record.get("phases", {}).items():
        yield f"phase_seconds/{name}", times["mean"]
    for group in ("bytes", "rows", "cache"):
        for name, value in (record.get(group) or {}).items():
            yield f"{group}/{name}", value
    for model in record.get("models", []):
        label = str(model.get("model", "")).replace("/", "_")
        if model.get("loss") is not None:
            yield f"model/{label}/loss", model["loss"]
        yield from _scores(f"model/{label}/score", model)


def _scores(name: str, scores: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for split in _SPLITS:
        if scores.get(split) is not None:
            yield f"{name}/{split}", scores[split]
