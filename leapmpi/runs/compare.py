"""Implementation of `leapmpi compare`: runs side by side, with ratios to the first."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from leapmpi.config.schema import model_names
from leapmpi.errors import LeapmpiError, RunFolderError, one_line
from leapmpi.runs import schemas
from leapmpi.runs.file_names import METRICS, SUMMARY
from leapmpi.runs.over_seeds import over_seeds, seed_table
from leapmpi.runs.run import ERRORS, Run, load_run, require, run_folders
from leapmpi.runs.text import condensed, score_text
from leapmpi.runs.warm_epochs import about_cold, seconds_and_ratio, set_ratios, warm_epochs


def compare(folders: list[str], as_json: bool = False) -> int:
    """Print a table (or JSON) of the runs in `folders`; name each without a complete epoch on standard error.

    Returns the exit code. Raises RunFolderError if no folder holds a run with an epoch.
    """
    # Skip runs that cannot be shown with a message, so that one of them does not spoil the table.
    rows: list[dict[str, Any]] = []
    compared: list[Run] = []
    skipped: list[RunFolderError] = []
    for folder in run_folders(folders):
        try:
            run = load_run(folder)
            each_model = (run.models() if run.finished else []) or [run]
            rows += [row(each) for each in each_model]
            compared += each_model if run.finished else []
        except RunFolderError as error:
            skipped.append(error)
    if not rows and len(folders) == 1:
        raise skipped[0]
    sys.stderr.writelines(f"leapmpi: left out: {one_line(each)}\n" for each in skipped)
    if not rows:
        raise RunFolderError(f"none of the {len(folders)} folders holds a run with a complete epoch")

    # Ratios need all rows.
    set_ratios(rows)
    shown = [json.dumps(rows, indent=1)] if as_json else [table(rows), seed_table(over_seeds(compared))]
    sys.stdout.write("\n\n".join(filter(None, shown)) + "\n")
    return 0


def row(run: Run) -> dict[str, Any]:
    """Return the figures of one run: sums per epoch, as medians over warm epochs (see `warm_epochs`).

    Raises RunFolderError if the run has no complete epoch yet, or its files are damaged.
    """
    ended = run.finished
    summary, path = (run.summary, run.path / SUMMARY) if ended else (_summary_so_far(run), run.path / METRICS)
    require(summary, schemas.FINISHED, path)
    try:
        figures = _figures(summary, summary["epochs"], _begun(run))
        return {"run": str(run.path), "data": _data(run), "ended": ended, **figures}
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise RunFolderError(f"{path}: the file is damaged ({error!r}); run it again") from None


def _summary_so_far(run: Run) -> dict[str, Any]:
    """Return figures of a run that has not finished; raise as `Run.summary` does if it has no complete epoch."""
    records = run.metrics() if (run.path / METRICS).exists() else []
    epochs = {each["epoch"]: each for each in records if each["event"] == "epoch"}
    banner = next((each for each in reversed(records) if each["event"] == "banner"), None)
    if not epochs or banner is None:
        return run.summary
    scored = [each for each in epochs.values() if each.get("accuracy", {}).get("val") is not None]
    sign = 1 if banner["metric"] in ERRORS else -1
    unscored: dict[str, Any] = {"epoch": 0, "accuracy": {}}
    best = min(scored, key=lambda each: sign * each["accuracy"]["val"], default=unscored)
    return {
        "strategy": run.config.strategy.name,
        "ranks": len(banner["ranks"]),
        "model": model_names(run.config),
        "metric": banner["metric"],
        "best": {"epoch": best["epoch"], "val": None, "test": None, **best["accuracy"]},
        "epochs": [epochs[number] for number in sorted(epochs)],
    }


def _data(run: Run) -> str | None:
    """Return the dataset's folder from the run's config; None if there is none or it cannot be read."""
    try:
        return run.config.data or None
    except LeapmpiError:
        return None


def _begun(run: Run) -> set[int]:
    """Return the positions of the first epoch of each start: 0, and wherever the run was resumed."""
    begun = {0}
    try:
        events = [record["event"] for record in run.metrics()]
    except (RunFolderError, KeyError, TypeError):
        return begun
    position = 0
    for event in events:
        if event == "resumed":
            begun.add(position)
        position += event == "epoch"
    return begun


def _figures(summary: dict[str, Any], epochs: list[dict[str, Any]], begun: set[int]) -> dict[str, Any]:
    warm, is_warm = warm_epochs(epochs, begun)
    return {
        "model": summary.get("model"),
        "strategy": summary["strategy"],
        "ranks": summary["ranks"],
        "time_steps": epochs[-1]["time_steps"],
        "prefetch": epochs[-1].get("prefetch", 0),
        "hidden_seconds": statistics.median(epoch.get("ahead", {}).get("hidden", 0.0) for epoch in warm),
        "epoch_seconds": statistics.median(epoch["seconds"] for epoch in warm),
        "warm": is_warm,
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


_SETTINGS = ("data", "model", "strategy", "ranks", "steps", "metric")
_HEADINGS = (
    *("run", *_SETTINGS, "val", "test", "loss"),
    *("s/epoch", "ratio", "eval s", "s overlapped", "rows", "remote", "MiB sent"),
)


def table(rows: list[dict[str, Any]]) -> str:
    """Format the rows as aligned text that fits the terminal, with what all share above it."""
    # Show whole paths only if folder names clash.
    data = _named({each["data"] for each in rows if each["data"]})
    runs = _named({each["run"] for each in rows})

    lines = [_HEADINGS]
    for each in rows:
        notes = [each["varied"], "not finished" * (not each["ended"])]
        about = f" ({', '.join(filter(None, notes))})" if any(notes) else ""
        lines.append(
            (
                runs.get(each["run"], each["run"]) + about,
                data.get(each["data"], "-"),
                each["model"] or "-",
                each["strategy"],
                str(each["ranks"]),
                str(each["time_steps"]),
                each["metric"],
                _score(each["val"]),
                _score(each["test"]),
                f"{each['loss']:.4f}",
                *seconds_and_ratio(each),
                "-" if each["evaluation_seconds"] is None else f"{each['evaluation_seconds']:.3f}",
                f"{each['hidden_seconds']:.3f}" if each["prefetch"] else "-",
                f"{each['rows']:,.0f}",
                f"{each['remote_rows']:,.0f}",
                f"{each['sent_bytes'] / 2**20:.1f}",
            )
        )
    return "\n\n".join(filter(None, [condensed(lines, _SETTINGS), about_cold(rows)]))


def _named(paths: set[str]) -> dict[str, str]:
    """Return a short name for each of `paths`: that of its folder, or the path itself where names clash."""
    unique = len({Path(path).name for path in paths}) == len(paths)
    return {path: Path(path).name if unique else path for path in paths}


def _score(score: float | None) -> str:
    return "-" if score is None else score_text(score)
