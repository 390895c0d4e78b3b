"""Sections about provenance (commands, versions, hosts, digests, settings) and about restarts and warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leapmpi.config.sections import flattened
from leapmpi.config.toml import to_toml
from leapmpi.errors import counted
from leapmpi.report.markup import Markup, details, element, facts, table
from leapmpi.report.numbers import BYTES, shown
from leapmpi.report.page import Section
from leapmpi.report.run_data import RunData

_MOST_RANKS = 64
_MOST_DECISIONS = 50


def section(runs: Sequence[RunData]) -> Section:
    """Return the provenance of each run; with several runs, differing settings come first."""
    body: list[Markup] = []
    if len(runs) > 1:
        differing = differences(runs)
        body.append(element("h3", "Settings that differ"))
        body.append(table(differing, len(runs) + 1) if len(differing) > 1 else element("p", "None."))
    for run in runs:
        body += [element("h3", run.label)] if len(runs) > 1 else []
        body += [facts(_facts(run)), *_ranks(run)]
        if run.config:
            body.append(details("All settings", element("pre", to_toml(run.config))))
    return Section("Provenance", body)


def differences(runs: Sequence[RunData]) -> list[list[str]]:
    """Return headings, then one row per setting that differs between runs, folder names excepted."""
    values = [flattened(run.config.to_values()) if run.config else {} for run in runs]
    keys = dict.fromkeys(key for each in values for key in each)
    rows = [["setting", *(run.label for run in runs)]]
    for key in keys:
        of_runs = [str(each.get(key, "-")) for each in values]
        if len(set(of_runs)) > 1 and key != "run.folder":
            rows.append([key, *of_runs])
    return rows


def _facts(run: RunData) -> Iterator[tuple[str, Any]]:
    # The last start says what runs now; what it does not repeat is that of the first.
    start, banner = run.last("resumed") or run.last("start"), run.last("banner")
    first = run.last("start")
    yield "folder", str(run.run.path)
    yield "status", run.status
    yield "command", start.get("command") or first.get("command") or "not recorded"
    yield "begun", _moment(first)
    yield "ended", _moment(run.last("end"))
    yield "leapmpi", start.get("version", "-")
    versions = start.get("versions") or first.get("versions") or {}
    yield "versions", ", ".join(f"{name} {each}" for name, each in versions.items()) or "not recorded"
    hosts = dict.fromkeys(each.get("host", "-") for each in run.ranks)
    yield "hosts", f"{len(hosts)}: {', '.join(list(hosts)[:_MOST_RANKS])}"
    yield "ranks", run.size
    if run.config:
        yield "data", run.config.data
        yield "seed", run.config.train.seed
    yield "strategy", run.ended.get("strategy") or (run.config.strategy.name if run.config else "-")
    yield "model", run.ended.get("model") or (run.config.model.name if run.config else "-")
    yield "dataset (content and cut)", run.ended.get("uuid") or banner.get("uuid", "-")
    yield "graph (content)", run.ended.get("graph_uuid", "-")
    yield "digest of the parameters", run.ended.get("parameters_digest", "-")
    for name, digest in (run.ended.get("code") or banner.get("code") or {}).items():
        yield f"code {name}", digest
    yield "restarts", run.ended.get("restarts", len(run.all("resumed")))


def _moment(record: Mapping[str, Any]) -> str:
    """Return when a record was made, to the second."""
    return re.sub(r"T(\d\d:\d\d:\d\d)(\.\d+)?\+00:00$", r" \1 UTC", str(record.get("time", "-")))


def _ranks(run: RunData) -> list[Markup]:
    """Return the table of ranks, hosts, devices and parts."""
    if not run.ranks:
        return []
    rows = [["rank", "host", "device", "threads", "parts", "features", "topology"]]
    for rank, each in enumerate(run.ranks[:_MOST_RANKS]):
        first, last = each.get("parts", ("-", "-"))
        sizes = (shown(each.get(name), BYTES) for name in ("features", "topology"))
        parts = str(first) if first == last else f"{first}-{last}"
        rows.append(
            [str(rank), each.get("host", "-"), each.get("device", "-"), each.get("threads", "-"), parts, *sizes]
        )
    left = len(run.ranks) - _MOST_RANKS
    return [details("Ranks" + f", the first {_MOST_RANKS} of {len(run.ranks)}" * (left > 0), table(rows, 3))]


def events(runs: Sequence[RunData]) -> Section:
    """Return starts and ends of each run, then the warnings of its log."""
    rows = [["run", "time", "event", "what"]]
    for run in runs:
        for record in run.all("start", "resumed", "interrupted", "end"):
            rows.append([run.label, _moment(record), record["event"], _event_text(record)])
        if run.ended.get("why"):
            rows.append([run.label, "-", run.status, _failure_text(run.ended)])
    body: list[Markup] = [table(rows, 4, heads=len(runs) > 1)]
    for run in runs:
        if run.warnings:
            body += [element("p", f"{run.label}: warnings in its log"), table([["line"], *([w] for w in run.warnings)])]
        if decisions := run.all("decision"):
            body.append(_decisions(run, decisions))
    if not any(run.warnings for run in runs):
        body.append(element("p", "No warnings."))
    return Section("Restarts and warnings", body)


def _event_text(record: dict[str, Any]) -> str:
    place = f"epoch {record['epoch']}, after iteration {record.get('iteration')}" if "epoch" in record else ""
    after = record.get("after") or {}
    before = f"the previous start ended {after['status']}: {after.get('why', '')}" if after.get("status") else ""
    ranks = counted(record["ranks"], "rank") if "ranks" in record else ""
    parts = (place, ranks, record.get("reason", ""), before, f"leapmpi {record.get('version', '')}")
    return "; ".join(part for part in map(str, parts) if part and part != "leapmpi ")


def _failure_text(ended: dict[str, Any]) -> str:
    where = [f"{name} {ended[name]}" for name in ("rank", "host", "phase", "epoch", "iteration") if name in ended]
    return f"{ended['why']}" + f" ({', '.join(where)})" * bool(where)


def _decisions(run: RunData, decisions: Sequence[dict[str, Any]]) -> Markup:
    rows = [["epoch", "iteration", "about", "value"]]
    rows += [[each["epoch"], each["iteration"], each["about"], str(each["value"])] for each in decisions]
    shown = rows[: _MOST_DECISIONS + 1]
    return details(f"{run.label}: {len(decisions)} decisions based on counts and timings", table(shown, 4))
