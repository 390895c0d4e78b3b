"""`leapmpi compare`: finished runs side by side, ratios to the first."""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

from leapmpi.errors import RunFolderError
from leapmpi.runs.run import Run, load_run
from leapmpi.runs.tables.text import aligned


def compare(folders: list[str], as_json: bool = False) -> int:
    """Print a table (or JSON) of the runs in `folders`. Raises RunFolderError for a folder without a finished run."""
    rows = [row(each) for run in map(load_run, folders) for each in run.models() or [run]]
    for each in rows:
        each["ratio"] = each["epoch_seconds"] / rows[0]["epoch_seconds"] if rows[0]["epoch_seconds"] else None
    sys.stdout.write((json.dumps(rows, indent=1) if as_json else table(rows)) + "\n")
    return 0


def row(run: Run) -> dict[str, Any]:
    """The figures of one run: sums per epoch, and their median over warm epochs (all but the first, if there are more).

    Raises RunFolderError when the run is not finished or its summary lacks what it should hold.
    """
    summary = run.summary
    try:
        return {"run": str(run.path), **_figures(summary, summary["epochs"])}
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise RunFolderError(f"{run.path / 'summary.json'}: the file is damaged ({error!r}); run it again") from None


def _figures(summary: dict[str, Any], epochs: list[dict[str, Any]]) -> dict[str, Any]:
    # The first epoch is slower while memory and caches fill.
    warm = epochs[1:] or epochs
    return {
        "strategy": summary["strategy"],
        "ranks": summary["ranks"],
        "time_steps": epochs[-1]["time_steps"],
        "prefetch": epochs[-1].get("prefetch", 0),
        "hidden_seconds": statistics.median(epoch.get("ahead", {}).get("hidden", 0.0) for epoch in warm),
        "epoch_seconds": statistics.median(epoch["seconds"] for epoch in warm),
        "evaluation_seconds": _median([each["evaluation_seconds"] for each in warm if "evaluation_seconds" in each]),
        "rows": statistics.median(sum(epoch["rows"].values()) for epoch in warm),
        "remote_rows": statistics.median(epoch["rows"]["remote"] for epoch in warm),
        "sent_bytes": statistics.median(sum(epoch["bytes"].values()) for epoch in warm),
        "loss": epochs[-1]["loss"],
        "val": summary["best"]["val"],
        "test": summary["best"]["test"],
        "metric": summary["metric"],
        "varied": summary.get("varied", ""),
    }


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


_HEADINGS = (
    *("run", "strategy", "ranks", "steps", "s/epoch", "ratio", "eval s", "hidden"),
    *("rows", "remote", "MiB sent", "loss", "val", "test"),
)


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as aligned text."""
    lines = [_HEADINGS]
    for each in rows:
        lines.append(
            (
                f"{each['run']} ({each['varied']})" if each["varied"] else each["run"],
                each["strategy"],
                str(each["ranks"]),
                str(each["time_steps"]),
                f"{each['epoch_seconds']:.3f}",
                "-" if each["ratio"] is None else f"{each['ratio']:.2f}",
                "-" if each["evaluation_seconds"] is None else f"{each['evaluation_seconds']:.3f}",
                f"{each['hidden_seconds']:.3f}" if each["prefetch"] else "-",
                f"{each['rows']:,.0f}",
                f"{each['remote_rows']:,.0f}",
                f"{each['sent_bytes'] / 2**20:.1f}",
                f"{each['loss']:.4f}",
                _score(each["val"]),
                _score(each["test"]),
            )
        )
    return aligned(lines)


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:.4f}"
