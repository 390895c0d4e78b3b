"""What happened on the way: starts, signals, failures, decisions by clocks, warnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leapmpi.report.markup import Markup, details, element, table
from leapmpi.report.page import Section
from leapmpi.report.run_data import RunData

_MOST_DECISIONS = 50


def section(runs: Sequence[RunData]) -> Section:
    """Starts and ends of each run, then warnings of its log."""
    rows = [["run", "time", "event", "what"]]
    for run in runs:
        for record in run.all("start", "resumed", "interrupted", "end"):
            rows.append([run.label, record.get("time", "-"), record["event"], _what(record)])
        if run.ended.get("why"):
            rows.append([run.label, "-", run.status, _failure(run.ended)])
    body: list[Markup] = [table(rows, 4)]
    for run in runs:
        if run.warnings:
            body += [element("p", f"{run.label}: warnings in its log"), table([["line"], *([w] for w in run.warnings)])]
        if decisions := run.all("decision"):
            body.append(_decisions(run, decisions))
    if not any(run.warnings for run in runs):
        body.append(element("p", "No warnings."))
    return Section("Restarts and warnings", body)


def _what(record: dict[str, Any]) -> str:
    place = f"epoch {record['epoch']}, after iteration {record.get('iteration')}" if "epoch" in record else ""
    after = record.get("after") or {}
    before = f"the start before ended {after['status']}: {after.get('why', '')}" if after.get("status") else ""
    ranks = f"{record['ranks']} ranks" if "ranks" in record else ""
    parts = (place, ranks, record.get("reason", ""), before, f"leapmpi {record.get('version', '')}")
    return "; ".join(part for part in map(str, parts) if part and part != "leapmpi ")


def _failure(ended: dict[str, Any]) -> str:
    where = [f"{name} {ended[name]}" for name in ("rank", "host", "phase", "epoch", "iteration") if name in ended]
    return f"{ended['why']}" + f" ({', '.join(where)})" * bool(where)


def _decisions(run: RunData, decisions: Sequence[dict[str, Any]]) -> Markup:
    rows = [["epoch", "iteration", "about", "value"]]
    rows += [[each["epoch"], each["iteration"], each["about"], str(each["value"])] for each in decisions]
    shown = rows[: _MOST_DECISIONS + 1]
    return details(f"{run.label}: {len(decisions)} decisions from counts and clocks", table(shown, 4))
