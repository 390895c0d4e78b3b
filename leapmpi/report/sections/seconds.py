"""Section about time: by epoch, phase and rank, with waiting and overlapped seconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leapmpi.report.figures import BarFigure, Figure, LineFigure, line_of
from leapmpi.report.markup import Markup, note, table
from leapmpi.report.numbers import SECONDS, SHARE, shown
from leapmpi.report.page import Section
from leapmpi.report.run_data import RunData

_LEAST = 0.005
"""Share of an epoch below which phases are shown together."""


def section(runs: Sequence[RunData]) -> Section:
    """Return seconds of epochs, and seconds of a warm epoch by phase, of each run and each rank."""
    figures: list[Figure] = []
    lines = [
        line_of(run.label, [(each["epoch"], each.get("seconds", np.nan)) for each in run.epochs])
        for run in runs
        if run.epochs
    ]
    if lines:
        figures.append(LineFigure("epoch-seconds", "Seconds of each epoch", "epoch", "seconds", lines, from_zero=True))
    if any(run.phase_means() for run in runs):
        figures.append(_by_phase(runs))
    for number, run in enumerate(runs):
        figures += _by_rank(run, f"-{number}" if len(runs) > 1 else "", len(runs) > 1)
    columns = [_facts(run) for run in runs]
    rows = [[row[0][0], *(text for _, text in row)] for row in zip(*columns, strict=True)]
    return Section("Time", [table([["", *(run.label for run in runs)], *rows])], figures, _unknown(runs))


def _by_phase(runs: Sequence[RunData]) -> BarFigure:
    found = [run.phase_means() for run in runs]
    names = phases_shown(found)
    stacks = [(name, [_of(each, name, names) for each in found]) for name in names]
    title = "Seconds of a warm epoch by phase, mean over ranks"
    return BarFigure("phases", title, [run.label for run in runs], stacks, SECONDS, "run")


def phases_shown(found: Sequence[dict[str, float]]) -> list[str]:
    """Return the phases with a colour of their own, longest first, then 'other' if any are left."""
    known = dict.fromkeys(name for each in found for name in each)
    totals = {name: sum(each.get(name, 0.0) for each in found) for name in known}
    whole = sum(totals.values()) or 1.0
    large = sorted((name for name in totals if totals[name] >= _LEAST * whole), key=lambda name: -totals[name])[:7]
    return large + ["other"] * (sum(totals[name] for name in totals if name not in large) > 0)


def _of(phases: dict[str, float], name: str, names: Sequence[str]) -> float:
    if name != "other":
        return phases.get(name, 0.0)
    return sum(seconds for each, seconds in phases.items() if each not in names)


def _by_rank(run: RunData, suffix: str, several: bool) -> list[Figure]:
    found = run.by_rank.get("phases")
    if not found:
        return []
    rows = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
    names = phases_shown(rows)
    stacks = [(name, [_of(each, name, names) for each in rows]) for name in names]
    title = "Seconds of the last warm epoch by rank and phase" + f": {run.label}" * several
    return [BarFigure(f"phases-by-rank{suffix}", title, rank_labels(run), stacks, SECONDS, "rank")]


def rank_labels(run: RunData) -> list[str]:
    """Return the labels of the rows of `by_rank`: ranks, or groups of ranks."""
    ranks, each = run.by_rank["ranks"], run.by_rank.get("each", 1)
    firsts = range(0, ranks, each)
    return [str(first) if each == 1 else f"{first}-{min(first + each, ranks) - 1}" for first in firsts]


def _facts(run: RunData) -> list[tuple[str, str]]:
    """Return seconds of the whole run and of an epoch, with overlapped and waiting ones."""
    training = sum(each.get("seconds", 0.0) for each in run.epochs)
    evaluation = sum(each.get("evaluation_seconds", 0.0) for each in run.epochs)
    whole, epoch = run.ended.get("seconds"), run.epoch_seconds
    rest = None if whole is None else whole - training - evaluation
    phases, ahead = run.phase_means(), [each["ahead"] for each in run.warm if "ahead" in each]
    hidden = float(np.median([each.get("hidden", 0.0) for each in ahead])) if ahead else None
    spent = float(np.median([_ahead(each) for each in ahead])) if ahead else None
    cores = [each["core_seconds"] / (each["seconds"] or 1.0) for each in run.warm if "core_seconds" in each]
    return [
        ("whole run", shown(whole, SECONDS)),
        ("training", shown(training, SECONDS)),
        ("evaluation", shown(evaluation, SECONDS)),
        ("start, checkpoints and end", shown(rest, SECONDS)),
        ("a warm epoch (median)", f"{shown(epoch, SECONDS)} of {len(run.warm)} epochs"),
        ("waiting in it (phase wait)", _with_share(phases.get("wait"), epoch)),
        ("prefetch in it", shown(spent, SECONDS)),
        ("overlapped with training", _with_share(hidden, spent)),
        ("cores busy, over all ranks", shown(float(np.median(cores))) if cores else "not recorded"),
    ]


def _ahead(ahead: dict) -> float:
    return sum(each["mean"] for each in ahead.get("phases", {}).values())


def _with_share(part: float | None, whole: float | None) -> str:
    text = shown(part, SECONDS)
    return f"{text} ({shown(part / whole, SHARE)})" if part and whole else text


def _unknown(runs: Sequence[RunData]) -> list[Markup]:
    missing = [run.label for run in runs if run.epochs and not run.by_rank.get("phases")]
    if not missing:
        return []
    return [note(f"Seconds of each rank are not recorded: {', '.join(missing)}.")]
