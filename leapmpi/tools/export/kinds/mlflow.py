"""MLflow's file store: a folder `mlruns` with one experiment and one run. Equal runs give equal bytes.

Layout: https://mlflow.org/docs/latest/tracking/backend-stores, "Local filesystem". Experiment and run have a
`meta.yaml`. Each metric (lines of milliseconds, value and step), parameter and tag has a file.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from leapmpi.runs.run import FINISHED
from leapmpi.tools.export.export_run import ExportFormat, ExportSource
from leapmpi.tools.export.run_series import RUNNING, RunSeries

_EXPERIMENT = "1"
_STATUS = {RUNNING: 1, FINISHED: 3}
"""MLflow's status codes; any other status counts as failed, 4."""
_FAILED = 4


def write(source: ExportSource, path: Path) -> None:
    """Write the folder `path`."""
    series = source.series
    # A fixed id makes a repeated export the same run for trackers.
    run_id = hashlib.blake2b(f"{series.name} {series.begun}".encode(), digest_size=16).hexdigest()
    experiment = path / _EXPERIMENT
    folder = experiment / run_id
    folder.mkdir(parents=True)
    begun = _milliseconds(series.begun)
    _put_yaml(
        experiment / "meta.yaml",
        artifact_location=f"./{_EXPERIMENT}",
        creation_time=begun,
        experiment_id=_EXPERIMENT,
        last_update_time=begun,
        lifecycle_stage="active",
        name="leapmpi",
    )
    _put_yaml(
        folder / "meta.yaml",
        artifact_uri=f"./{_EXPERIMENT}/{run_id}/artifacts",
        end_time=None if series.ended is None else _milliseconds(series.ended),
        entry_point_name="",
        experiment_id=_EXPERIMENT,
        lifecycle_stage="active",
        run_id=run_id,
        run_name=series.name,
        run_uuid=run_id,
        source_name="",
        source_type=4,
        source_version="",
        start_time=begun,
        status=_STATUS.get(series.status, _FAILED),
        tags=[],
        user_id="leapmpi",
    )
    (folder / "artifacts").mkdir()
    _put_entries(folder, series)


def _put_entries(folder: Path, series: RunSeries) -> None:
    """Write a file for each parameter, tag and metric below `folder`."""
    entries = {f"params/{_name(key)}": value for key, value in series.settings().items()}
    entries |= {f"tags/{_name(key)}": value for key, value in series.facts().items()}
    entries |= {"tags/mlflow.runName": series.name}
    for point in series.points():
        name = f"metrics/{_name(point.name)}"
        line = f"{_milliseconds(point.time)} {point.value!r} {point.epoch}\n"
        entries[name] = entries.get(name, "") + line
    if series.ended is not None:
        for name, value in series.best().items():
            entries[f"metrics/{_name(name)}"] = f"{_milliseconds(series.ended)} {value!r} 0\n"
    for name, text in entries.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _name(name: str) -> str:
    """Replace characters of `name` that MLflow rejects."""
    return re.sub(r"[^\w./ -]", "_", name)


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)


def _put_yaml(path: Path, **values: object) -> None:
    """Write plain values; one-line JSON is YAML."""
    path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items()), encoding="utf-8")


MEMBER = ExportFormat(write, "folder mlruns for MLflow: mlflow ui --backend-store-uri FOLDER", "mlruns")
