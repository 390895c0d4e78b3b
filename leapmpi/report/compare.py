"""`leapmpi compare`: finished runs side by side, ratios to the first."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from leapmpi.run import Run, load_run


def compare(folders: list[str], as_json: bool = False) -> int:
    """Print a table (or JSON) of the runs in `folders`. Raises RunFolderError for a folder without a finished run."""
    rows = [row(load_run(folder)) for folder in folders]
    for each in rows:
        each["ratio"] = each["epoch_seconds"] / rows[0]["epoch_seconds"] if rows[0]["epoch_seconds"] else None
    sys.stdout.write((json.dumps(rows, indent=1) if as_json else table(rows)) + "\n")
    return 0


def row(run: Run) -> dict[str, Any]:
    """The figures of one run: median of its warm epochs (all but the first, where there are more), sums per epoch."""
    epochs = run.summary["epochs"]
    warm = epochs[1:] or epochs
    rows = [epoch["rows"] for epoch in warm]
    return {
        "run": str(Path(run.path)),
        "strategy": run.summary["strategy"],
        "ranks": run.summary["ranks"],
        "time_steps": epochs[-1]["time_steps"],
        "epoch_seconds": statistics.median(epoch["seconds"] for epoch in warm),
        "rows": statistics.median(sum(each.values()) for each in rows),
        "remote_rows": statistics.median(each["remote"] for each in rows),
        "sent_bytes": statistics.median(sum(epoch["bytes"].values()) for epoch in warm),
        "loss": epochs[-1]["loss"],
        "val": run.summary["best"]["val"],
        "test": run.summary["best"]["test"],
        "metric": run.summary["metric"],
    }


_HEADINGS = (
    *("run", "strategy", "ranks", "steps", "s/epoch", "ratio"),
    *("rows", "remote", "MiB sent", "loss", "val", "test"),
)


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as aligned text."""
    lines = [
        ("run", "strategy", "ranks", "steps", "s/epoch", "ratio", "rows", "remote", "MiB sent", "loss", "val", "test")
    ]
    for each in rows:
        lines.append(
            (
                each["run"],
                each["strategy"],
                str(each["ranks"]),
                str(each["time_steps"]),
                f"{each['epoch_seconds']:.3f}",
                "-" if each["ratio"] is None else f"{each['ratio']:.2f}",
                f"{each['rows']:,.0f}",
                f"{each['remote_rows']:,.0f}",
                f"{each['sent_bytes'] / 2**20:.1f}",
                f"{each['loss']:.4f}",
                _score(each["val"]),
                _score(each["test"]),
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:.4f}"
