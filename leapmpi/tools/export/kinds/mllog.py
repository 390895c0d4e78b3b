"""MLPerf's training log, lines `:::MLLOG {...}`: start and stop of run, epochs and evaluations, scores, settings.

Format: https://github.com/mlcommons/training_policies, "Appendix: Timing and logging". Times are those of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from leapmpi.runs.run import FINISHED
from leapmpi.tools.export.export_run import ExportFormat, ExportSource
from leapmpi.tools.export.run_series import RUNNING, RunSeries

POINT, START, END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"

_SETTINGS = {
    "train.batch_size": "global_batch_size",
    "train.seed": "seed",
    "train.optimizer": "opt_name",
    "train.lr": "opt_base_learning_rate",
    "train.weight_decay": "opt_weight_decay",
}
"""Settings with a name in MLPerf."""


def write(source: ExportSource, path: Path) -> None:
    """Write the file `path`."""
    text = "".join(f"{line}\n" for line in lines(source.series))
    path.write_text(text, encoding="utf-8")


def lines(series: RunSeries) -> Iterator[str]:
    """Yield the lines of the log, in the order of their times."""
    begun = series.begun
    yield _line(begun, POINT, "submission_benchmark", "leapmpi")
    yield _line(begun, POINT, "submission_division", "open")
    yield _line(begun, POINT, "submission_platform", f"{series.facts().get('leapmpi.ranks', '?')} ranks")
    for key, value in series.settings().items():
        if key in _SETTINGS:
            yield _line(begun, POINT, _SETTINGS[key], _number(value))
    yield _line(begun, START, "init_start", None)
    first = _first_epoch(series)
    yield _line(first, END, "init_stop", None)
    yield _line(first, START, "run_start", None)
    yield from _epochs(series, first)
    if series.status != RUNNING:
        status = "success" if series.status == FINISHED else "aborted"
        yield _line(series.ended or begun, END, "run_stop", None, status=status)


def _first_epoch(series: RunSeries) -> float:
    """Return the start of the first epoch: the time of its record minus its seconds."""
    record = next((each for each in _epoch_ends(series)), None)
    return series.begun if record is None else max(series.begun, record[0] - record[1] - record[2])


def _epoch_ends(series: RunSeries) -> Iterator[tuple[float, float, float, int, float | None]]:
    """Yield for each epoch: time of its record, seconds of training and of evaluation, number, score."""
    found: dict[int, dict[str, float]] = {}
    for point in series.points():
        found.setdefault(point.epoch, {"time": point.time})[point.name] = point.value
    for epoch, values in found.items():
        yield (
            values["time"],
            values.get("seconds", 0.0),
            values.get("evaluation_seconds", 0.0),
            epoch,
            values.get("score/val"),
        )


def _epochs(series: RunSeries, earliest: float) -> Iterator[str]:
    for time, training, evaluation, epoch, score in _epoch_ends(series):
        # Clamp starts: an interval must not begin before the end of the previous one.
        begun = max(earliest, time - training - evaluation)
        trained = max(begun, time - evaluation)
        yield _line(begun, START, "epoch_start", None, epoch_num=epoch)
        yield _line(trained, END, "epoch_stop", None, epoch_num=epoch)
        if score is not None:
            yield _line(trained, START, "eval_start", None, epoch_num=epoch)
            yield _line(time, POINT, "eval_accuracy", score, epoch_num=epoch)
            yield _line(time, END, "eval_stop", None, epoch_num=epoch)
        earliest = time


def _line(time: float, kind: str, key: str, value: object, **metadata: object) -> str:
    """Format one line. MLPerf requires file and line number of the caller in the metadata."""
    about = {"file": "metrics.jsonl", "lineno": 0, **metadata}
    content = {"namespace": "", "time_ms": round(1000 * time), "event_type": kind, "key": key, "value": value}
    return f":::MLLOG {json.dumps({**content, 'metadata': about})}"


def _number(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


MEMBER = ExportFormat(write, "lines of MLPerf's training log", "mllog.txt")
