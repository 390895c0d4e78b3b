"""Section about learning: loss and scores over epochs and seconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leapmpi.report.figures import Figure, Line, LineFigure, constant_line, line_of
from leapmpi.report.markup import Markup, element, table
from leapmpi.report.numbers import SCORE, SECONDS, capital, shown, spelled
from leapmpi.report.page import Section
from leapmpi.report.run_data import SCORED, RunData


def section(runs: Sequence[RunData]) -> Section:
    """Return loss by batch, loss and scores by epoch, scores by seconds, and a table of the best epochs."""
    figures: list[Figure] = []
    if batches := [line for run in runs for line in _batch_losses(run)]:
        figures.append(LineFigure("batch-loss", "Loss of each batch", "epoch", "loss", batches))
    if epochs := [line for run in runs for line in _epoch_losses(run)]:
        figures.append(LineFigure("loss", "Mean loss of an epoch", "epoch", "loss", epochs))
    metric = _metric(runs)
    if scores := [line for run in runs for line in _scores(run, len(runs) > 1, None)]:
        title = f"{capital(metric)} by epoch"
        figures.append(LineFigure("scores", title, "epoch", metric, [*scores, *_baselines(runs, scores)], SCORE))
    if scores := [line for run in runs for line in _scores(run, len(runs) > 1, run.finished_at())]:
        title = f"{capital(metric)} by seconds of training and evaluation"
        lines = [*scores, *_baselines(runs, scores)]
        figures.append(LineFigure("scores-over-seconds", title, "seconds", metric, lines, SCORE))
    return Section("Learning", [_best(runs, metric), *_models(runs)], figures)


def _metric(runs: Sequence[RunData]) -> str:
    names = dict.fromkeys(run.metric for run in runs)
    name = spelled(next(iter(names))) if len(names) == 1 else "score"
    return f"{name} (sampled neighbours)" if all(run.sampled for run in runs) else name


def _named(run: RunData, name: str, several: bool) -> str:
    return f"{run.label}: {name}" if several else name


def _batch_losses(run: RunData) -> list[Line]:
    known = [(each["epoch"], each["losses"]) for each in run.epochs if each.get("losses")]
    if not known:
        return []
    x = np.concatenate([epoch - 1 + (np.arange(len(losses)) + 1) / len(losses) for epoch, losses in known])
    return [Line(run.label, x, np.concatenate([np.array(losses, np.float64) for _, losses in known]))]


def _epoch_losses(run: RunData) -> list[Line]:
    known = [(each["epoch"], each["loss"]) for each in run.epochs if "loss" in each]
    return [line_of(run.label, known)] if known else []


def _scores(run: RunData, several: bool, seconds: np.ndarray | None) -> list[Line]:
    """Return scores of the splits over epochs, or over `seconds`, float64[epochs]."""
    lines = []
    for split in SCORED if not several else SCORED[:1]:
        points = [
            (each["epoch"] if seconds is None else seconds[number], each["accuracy"][split])
            for number, each in enumerate(run.epochs)
            if each.get("accuracy", {}).get(split) is not None
        ]
        if points:
            lines.append(line_of(_named(run, split, several), points))
    return lines


def _baselines(runs: Sequence[RunData], scores: Sequence[Line]) -> list[Line]:
    """Return the validation scores of constant baselines, one line for each that differs."""
    found = {shown(run.trivial["val"], SCORE): run.trivial["val"] for run in runs if run.trivial.get("val") is not None}
    answers = {run.trivial.get("answer") or "constant baseline" for run in runs if run.trivial}
    name = answers.pop() if len(answers) == 1 else "constant baseline"
    return [constant_line(f"{name} (val {text})", value, scores) for text, value in found.items()]


def _best(runs: Sequence[RunData], metric: str) -> Markup:
    """Return a table of the best epoch of each run."""
    heads = (f"{metric}: val", "test", "exact: val", "test", "constant baseline: val", "test")
    rows = [["run", "best epoch", *heads, "seconds until then"]]
    for run in runs:
        best, ended = run.best, run.finished_at()
        position = next((n for n, each in enumerate(run.epochs) if each["epoch"] == best.get("epoch")), None)
        cells = [f"{shown(best.get('epoch'))} of {len(run.epochs)}", *(shown(best.get(each), SCORE) for each in SCORED)]
        until = None if position is None else float(ended[position])
        further = [shown(each.get(split), SCORE) for each in (run.exact, run.trivial) for split in SCORED]
        rows.append([run.label, *cells, *further, shown(until, SECONDS)])
    return table(rows, heads=len(runs) > 1)


def _models(runs: Sequence[RunData]) -> list[Markup]:
    """Return the scores of each model, for runs of several models."""
    parts = []
    for run in runs:
        if models := run.ended.get("models"):
            rows = [["model", "differs in", "best epoch", "val", "test"]]
            for number, each in enumerate(models):
                best = each.get("best", {})
                cells = (shown(best.get(split), SCORE) for split in SCORED)
                rows.append([f"model {number}", each.get("varied", ""), shown(best.get("epoch")), *cells])
            parts += [
                element("p", f"{run.label} trained {len(models)} models:"),
                table(rows, 2),
            ]
    return parts
