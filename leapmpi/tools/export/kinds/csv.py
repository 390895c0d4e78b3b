"""Table of a run for spreadsheets, R and pandas: a row for each epoch, a column for each number (RFC 4180)."""

from __future__ import annotations

import csv
from pathlib import Path

from leapmpi.tools.export.export_run import ExportFormat, ExportSource


def write(source: ExportSource, path: Path) -> None:
    """Write the file `path`. Numbers are as recorded: seconds, bytes, scores; a field is empty where there is none."""
    rows: dict[int, dict[str, float]] = {}
    for point in source.series.points():
        rows.setdefault(point.epoch, {})[point.name] = point.value
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["epoch", *names])
        for epoch in sorted(rows):
            writer.writerow([epoch, *(_text(rows[epoch].get(name)) for name in names)])


def _text(value: float | None) -> str:
    """Format a number with all its digits; whole numbers without a point."""
    if value is None:
        return ""
    return str(int(value)) if value.is_integer() else repr(value)


MEMBER = ExportFormat(write, "table for spreadsheets: a row for each epoch", "epochs.csv", ".csv")
