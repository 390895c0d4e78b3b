"""Sections about forecasts beside measurements, and about balance and memory of ranks."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leapmpi.report.figures import MOST_CELLS, BarFigure, Figure
from leapmpi.report.markup import element, note, table
from leapmpi.report.numbers import BYTES, COUNT, SECONDS, SHARE, shown
from leapmpi.report.page import Section
from leapmpi.report.run_data import RunData

Pair = tuple[str, float | None, float | None, str]
"""Name of a figure, predicted value, measured value, unit."""


def section(runs: Sequence[RunData], forecasts: Mapping[str, dict[str, Any]], command: str = "") -> Section:
    """Return a table for each run; `forecasts` are those of `leapmpi plan` by run label, made by `command`."""
    rows = [["run", "an epoch", "predicted", "measured", "predicted / measured"]]
    for run in runs:
        for name, predicted, measured, unit in pairs(run, forecasts.get(run.label, {})):
            ratio = predicted / measured if predicted and measured else None
            rows.append([run.label, name, shown(predicted, unit), shown(measured, unit), shown(ratio)])
    body = (
        [table(rows, 2, heads=len(runs) > 1)] if len(rows) > 1 else [element("p", "The records hold no predictions.")]
    )
    noted = "Seconds and bytes of the strategy that --strategy auto chose, and hits of the cache, are in the records. "
    if not forecasts and command:
        noted += f"{command} predicts rows, bytes by kind, locality, balance and memory as well."
    if any("memory" in each for each in forecasts.values()):
        noted += "Memory is predicted of data and an iteration, and measured with Python and libraries."
    missing = [f"{run.label}: {why}" for run in runs if (why := forecasts.get(run.label, {}).get("why"))]
    notes = [note(each) for each in (noted, *missing)]
    return Section("Plan beside measured", [*body, *notes])


def pairs(run: RunData, forecast: Mapping[str, Any]) -> Iterator[Pair]:
    """Yield all predicted figures of a run, from its records and a forecast."""
    choice = run.last("banner").get("strategy_choice") or {}
    chosen = choice.get("forecasts", {}).get(choice.get("strategy"), {})
    sent = run.median("bytes")
    if chosen:
        yield "seconds", chosen.get("seconds"), run.epoch_seconds, SECONDS
    # A forecast made for this page is newer than the one that chose the strategy.
    if chosen and "bytes" not in forecast:
        yield "bytes", chosen.get("bytes"), sum(sent.values()), BYTES
    yield from _of_forecast(forecast)
    if cached := [each["cache"] for each in run.warm if "cache" in each]:
        measured = statistics.median(each.get("hit_rate", 0.0) for each in cached)
        yield "rows saved by the cache", cached[-1].get("predicted_hit_rate"), measured, SHARE
    if "micrograph_locality" in forecast:
        yield "R_micro", forecast["micrograph_locality"], None, SHARE
    if "imbalance" in forecast:
        yield "slowest rank over mean", forecast["imbalance"], run.imbalance, ""
    peaks = run.ended.get("peak_memory_bytes")
    if "memory" in forecast:
        yield (
            "largest memory of a rank",
            max(forecast["memory"]),
            max(peaks) if peaks else None,
            BYTES,
        )


def _of_forecast(forecast: Mapping[str, Any]) -> Iterator[Pair]:
    for name, unit in (("rows", COUNT), ("bytes", BYTES)):
        for key, each in forecast.get(name, {}).items():
            yield f"{key} ({name})", each["predicted"], each["counted"], unit


def balance(
    runs: Sequence[RunData], forecasts: Mapping[str, dict[str, Any]], health: Mapping[str, Any] | None
) -> Section:
    """Return a row for each run, and the memory of each rank."""
    rows = [
        ["run", "busiest rank over mean", "remote rows", "saved by the cache", "R_micro", "largest memory of a rank"]
    ]
    figures: list[Figure] = []
    for number, run in enumerate(runs):
        forecast = forecasts.get(run.label, {})
        rows.append([run.label, *_balance_of(run, forecast, health)])
        if peaks := run.ended.get("peak_memory_bytes"):
            suffix, of = (f"-{number}", f": {run.label}") if len(runs) > 1 else ("", "")
            figures.append(_memory_figure(peaks, forecast.get("memory"), f"memory{suffix}", of))
    return Section("Balance and memory", [table(rows, heads=len(runs) > 1)], figures)


def _balance_of(run: RunData, forecast: Mapping[str, Any], health: Mapping[str, Any] | None) -> list[str]:
    rows = run.median("rows")
    remote = rows.get("remote", 0) / sum(rows.values()) if sum(rows.values()) else None
    hits = [each["cache"].get("hit_rate", 0.0) for each in run.warm if "cache" in each]
    locality = forecast.get("micrograph_locality", (health or {}).get("micrograph_locality"))
    peaks = run.ended.get("peak_memory_bytes") or run.by_rank.get("memory")
    return [
        shown(run.imbalance) if run.by_rank else "not recorded",
        shown(remote, SHARE),
        shown(statistics.median(hits), SHARE) if hits else "no cache",
        shown(locality, SHARE) if locality is not None else "not examined",
        shown(max(peaks), BYTES) if peaks else "not recorded",
    ]


def _memory_figure(peaks: Sequence[float], predicted: Sequence[float] | None, name: str, of: str) -> BarFigure:
    """Return peaks by rank, or the largest peak of each group of ranks."""
    each = -(-len(peaks) // MOST_CELLS)
    firsts = range(0, len(peaks), each)
    labels = [f"rank {first}" if each == 1 else f"ranks {first}-{first + each - 1}" for first in firsts]
    bars = [("peak, measured", [max(peaks[first : first + each]) for first in firsts])]
    if predicted and len(predicted) == len(peaks):
        bars.insert(0, ("data and an iteration, predicted", [max(predicted[f : f + each]) for f in firsts]))
    title = f"Memory of each rank{of}"
    return BarFigure(name, title, labels, bars, BYTES, "rank", stacked=False)
