"""What was predicted, beside what was measured or counted, for every figure that is predicted."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leapmpi.report.markup import element, table
from leapmpi.report.numbers import BYTES, COUNT, SECONDS, SHARE, shown
from leapmpi.report.page import Section
from leapmpi.report.run_data import RunData

Pair = tuple[str, float | None, float | None, str]
"""What it is, predicted, measured, unit."""


def section(runs: Sequence[RunData], forecasts: Mapping[str, dict[str, Any]]) -> Section:
    """A table for each run; `forecasts` are those of `leapmpi plan` by the labels of the runs, where they were made."""
    rows = [["run", "an epoch", "predicted", "measured", "predicted / measured"]]
    for run in runs:
        for name, predicted, measured, unit in pairs(run, forecasts.get(run.label, {})):
            ratio = predicted / measured if predicted and measured else None
            rows.append([run.label, name, shown(predicted, unit), shown(measured, unit), shown(ratio)])
    body = [table(rows, 2)] if len(rows) > 1 else [element("p", "Nothing is predicted in the records.")]
    note = "Seconds and bytes of the strategy that --strategy auto chose, and hits of the cache, are in the records. "
    if not forecasts:
        note += "--data DATA predicts rows, bytes by kind, locality, balance and memory as well."
    missing = [f"{run.label}: {why}" for run in runs if (why := forecasts.get(run.label, {}).get("why"))]
    notes = [element("p", each, class_="note") for each in (note, *missing)]
    return Section("Plan beside measured", [*body, *notes])


def pairs(run: RunData, forecast: Mapping[str, Any]) -> Iterator[Pair]:
    """All that is predicted of a run, from its records and a forecast."""
    choice = run.last("banner").get("strategy_choice") or {}
    chosen = choice.get("forecasts", {}).get(choice.get("strategy"), {})
    sent = run.median("bytes")
    if chosen or forecast.get("seconds"):
        yield "seconds", forecast.get("seconds") or chosen.get("seconds"), run.epoch_seconds, SECONDS
    if chosen and "bytes" not in forecast:
        yield "bytes", chosen.get("bytes"), sum(sent.values()), BYTES
    yield from _of_forecast(forecast)
    if cached := [each["cache"] for each in run.warm if "cache" in each]:
        measured = statistics.median(each.get("hit_rate", 0.0) for each in cached)
        yield "rows that the cache spared", cached[-1].get("predicted_hit_rate"), measured, SHARE
    if "micrograph_locality" in forecast:
        yield "R_micro", forecast["micrograph_locality"], None, SHARE
    if "imbalance" in forecast:
        yield "slowest rank over mean", forecast["imbalance"], imbalance(run), ""
    peaks = run.ended.get("peak_memory_bytes")
    if "memory" in forecast:
        yield (
            "memory of a rank, the most (predicted: data and an iteration, measured: Python and its libraries too)",
            max(forecast["memory"]),
            max(peaks) if peaks else None,
            BYTES,
        )


def _of_forecast(forecast: Mapping[str, Any]) -> Iterator[Pair]:
    for name, unit in (("rows", COUNT), ("bytes", BYTES)):
        for key, each in forecast.get(name, {}).items():
            yield f"{key} ({name})", each["predicted"], each["counted"], unit


def imbalance(run: RunData) -> float | None:
    """Seconds of work of the busiest rank, waiting left out, over the mean; None where they are not recorded."""
    phases = run.by_rank.get("phases")
    if not phases:
        return None
    busy = [sum(each) for each in zip(*(phases[name] for name in phases if name in WORK), strict=True)]
    return max(busy) / (sum(busy) / len(busy)) if sum(busy) else None


WORK = ("plan", "sample", "compute", "gather")
"""Phases that a rank spends on its own work, not on waiting for others."""
