"""Offline run of Weights & Biases, for a later `wandb sync`. Nothing is sent here.

The wandb library writes the files. Their bytes differ between exports, their contents do not.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from pathlib import Path

from leapmpi.tools.export.export_run import ExportFormat, ExportSource, needed
from leapmpi.tools.export.run_series import RUNNING


def write(source: ExportSource, path: Path) -> None:
    """Write the folder `path`. The run has the same id in each export."""
    os.environ.setdefault("WANDB_SILENT", "true")
    library = needed("wandb", "wandb", "wandb")
    series = source.series
    path.mkdir()
    run = library.init(
        mode="offline",
        dir=str(path),
        project="leapmpi",
        name=series.name,
        id=hashlib.blake2b(f"{series.name} {series.begun}".encode(), digest_size=8).hexdigest(),
        config={**series.settings(), **series.facts()},
        settings=library.Settings(silent=True, x_disable_stats=True, x_disable_meta=True, console="off"),
    )
    # One call for an epoch: each call is a step of its own there.
    for epoch, points in itertools.groupby(series.points(), key=lambda point: point.epoch):
        numbers = list(points)
        values = {point.name: point.value for point in numbers}
        run.log({**values, "epoch": epoch, "_timestamp": numbers[0].time}, step=epoch)
    run.summary.update(series.best())
    run.finish(exit_code=0 if series.status in (RUNNING, "finished") else 1)


MEMBER = ExportFormat(
    write, "folder with an offline run of Weights & Biases: wandb sync FOLDER/wandb/offline-run-*", "wandb"
)
