"""Section about traffic: bytes by kind and between ranks, the load of the link, rows by place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from leapmpi.report.figures import BarFigure, Figure, HeatFigure
from leapmpi.report.markup import bullets, element
from leapmpi.report.numbers import BYTES, COUNT, SHARE, shown
from leapmpi.report.page import Section
from leapmpi.report.run_data import RunData
from leapmpi.report.sections.seconds import rank_labels

_MOST_KINDS = 7


def section(runs: Sequence[RunData], forecasts: Mapping[str, dict[str, Any]]) -> Section:
    """Return bytes by kind, rows by place, and the bytes between ranks of each run."""
    figures: list[Figure] = []
    if any(sum(run.median("bytes").values()) for run in runs):
        figures.append(_by_kind(runs))
    if any(run.median("rows") for run in runs):
        figures.append(_rows(runs))
    sentences: list[str] = []
    for number, run in enumerate(runs):
        suffix, of = (f"-{number}", f": {run.label}") if len(runs) > 1 else ("", "")
        if (pairs := pairs_of(run)) is not None and run.size > 1:
            labels, title = rank_labels(run), f"Bytes of the last warm epoch from rank to rank{of}"
            figures.append(HeatFigure(f"pairs{suffix}", title, pairs, labels, labels, "from rank", "to rank", BYTES))
            sentences.append(f"{run.label}: {_against_the_link(run, pairs)}")
        elif run.epochs and run.size > 1:
            sentences.append(f"{run.label}: bytes from rank to rank are not recorded")
        if (predicted := forecasts.get(run.label, {}).get("pairs")) is not None and run.size > 1:
            values = np.array(predicted, np.float64)
            labels = [str(rank) for rank in range(len(values))]
            title = f"The same as predicted by leapmpi plan{of}"
            figures.append(
                HeatFigure(f"pairs-predicted{suffix}", title, values, labels, labels, "from rank", "to rank", BYTES)
            )
    notes = [bullets(sentences)] if sentences else []
    notes += [element("p", f"{run.label} is one rank: no traffic between ranks.") for run in runs if run.size == 1]
    return Section("Traffic", notes, figures)


def pairs_of(run: RunData) -> np.ndarray | None:
    """Return bytes of an epoch between groups of ranks, float64[groups, groups]; None if unknown."""
    sent = run.by_rank.get("sent")
    return np.array(sent, np.float64) if sent else None


def _by_kind(runs: Sequence[RunData]) -> BarFigure:
    found = [run.median("bytes") for run in runs]
    totals = {kind: sum(each.get(kind, 0) for each in found) for each in found for kind in each}
    large = sorted((kind for kind in totals if totals[kind]), key=lambda kind: -totals[kind])
    names = large[:_MOST_KINDS]
    stacks = [(kind, [each.get(kind, 0) for each in found]) for kind in names]
    if rest := large[_MOST_KINDS:]:
        stacks.append(("other", [sum(each.get(kind, 0) for kind in rest) for each in found]))
    title = "Bytes of a warm epoch by kind, sent by all ranks"
    return BarFigure("bytes", title, [run.label for run in runs], stacks or [("none", [0.0] * len(runs))], BYTES, "run")


def _rows(runs: Sequence[RunData]) -> BarFigure:
    found = [run.median("rows") for run in runs]
    places = dict.fromkeys(place for each in found for place in each)
    stacks = [(place, [each.get(place, 0) for each in found]) for place in places if any(e.get(place) for e in found)]
    title = "Feature rows read in a warm epoch, by place"
    return BarFigure(
        "rows",
        title,
        [run.label for run in runs],
        stacks or [("none", [0.0] * len(runs))],
        COUNT,
        "run",
        measure="rows",
    )


def _against_the_link(run: RunData, pairs: np.ndarray) -> str:
    """Describe the busiest ranks and their share of the link's rate, if it is known."""
    out, into = pairs.sum(axis=1), pairs.sum(axis=0)
    labels, seconds = rank_labels(run), run.epoch_seconds
    sender, receiver = int(out.argmax()), int(into.argmax())
    each = run.by_rank.get("each", 1)
    what = "rank" if each == 1 else "ranks"
    text = (
        f"{what} {labels[sender]} sent most, {shown(float(out[sender]), BYTES)} an epoch, {what} {labels[receiver]} "
        f"received most, {shown(float(into[receiver]), BYTES)}; the mean is {shown(float(out.mean()), BYTES)}"
    )
    cost = run.last("banner").get("rates", {}).get("byte")
    if not cost or not seconds:
        return text + "; the rate of the link is not recorded"
    # A link sends and receives at the same time: the busier direction counts, not their sum.
    busiest = max(float(out.max()), float(into.max())) / each / seconds
    whose = run.last("banner").get("rates", {}).get("measured")
    kind = "measured by leapmpi doctor --measure" if whose else "a documented constant, not measured"
    return (
        f"{text}. That is {shown(busiest, BYTES)} a second of the {shown(1 / cost, BYTES)} a second that a rank's link "
        f"carries ({kind}): {shown(busiest * cost, SHARE)}"
    )
