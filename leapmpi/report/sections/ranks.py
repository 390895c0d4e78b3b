"""How evenly ranks worked, what they held, what the cache spared, how local micrographs are."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from leapmpi.report.figures import MOST_CELLS, BarFigure, Figure
from leapmpi.report.markup import table
from leapmpi.report.numbers import BYTES, SHARE, shown
from leapmpi.report.page import Section
from leapmpi.report.run_data import RunData
from leapmpi.report.sections.plan_and_measured import imbalance


def section(
    runs: Sequence[RunData], forecasts: Mapping[str, dict[str, Any]], health: Mapping[str, Any] | None
) -> Section:
    """A line for each run; memory of the ranks of each."""
    rows = [["run", "busiest rank over mean", "remote rows", "spared by the cache", "R_micro", "most memory of a rank"]]
    figures: list[Figure] = []
    for number, run in enumerate(runs):
        forecast = forecasts.get(run.label, {})
        rows.append([run.label, *_figures(run, forecast, health)])
        if peaks := run.ended.get("peak_memory_bytes"):
            suffix, of = (f"-{number}", f": {run.label}") if len(runs) > 1 else ("", "")
            figures.append(_memory(peaks, forecast.get("memory"), f"memory{suffix}", of))
    return Section("Balance and memory", [table(rows)], figures)


def _figures(run: RunData, forecast: Mapping[str, Any], health: Mapping[str, Any] | None) -> list[str]:
    rows = run.median("rows")
    remote = rows.get("remote", 0) / sum(rows.values()) if sum(rows.values()) else None
    hits = [each["cache"].get("hit_rate", 0.0) for each in run.warm if "cache" in each]
    locality = forecast.get("micrograph_locality", (health or {}).get("micrograph_locality"))
    peaks = run.ended.get("peak_memory_bytes") or run.by_rank.get("memory")
    return [
        shown(imbalance(run)) if run.by_rank else "not recorded",
        shown(remote, SHARE),
        shown(statistics.median(hits), SHARE) if hits else "no cache",
        shown(locality, SHARE) if locality is not None else "needs --data",
        shown(max(peaks), BYTES) if peaks else "not recorded",
    ]


def _memory(peaks: Sequence[float], predicted: Sequence[float] | None, name: str, of: str) -> BarFigure:
    """Peaks by rank, or by groups of ranks; the most of each group."""
    each = -(-len(peaks) // MOST_CELLS)
    firsts = range(0, len(peaks), each)
    labels = [f"rank {first}" if each == 1 else f"ranks {first}-{first + each - 1}" for first in firsts]
    bars = [("peak, measured", [max(peaks[first : first + each]) for first in firsts])]
    if predicted and len(predicted) == len(peaks):
        bars.insert(0, ("data and an iteration, predicted", [max(predicted[f : f + each]) for f in firsts]))
    title = f"Memory of each rank{of}"
    return BarFigure(name, title, labels, bars, BYTES, "rank", stacked=False)
