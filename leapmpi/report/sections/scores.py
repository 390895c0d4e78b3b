"""Section about the scores of the best epoch: by class, degree and part, and the confusion matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from leapmpi.report.figures import BarFigure, Figure, HeatFigure
from leapmpi.report.markup import Markup, details, note, table
from leapmpi.report.numbers import COUNT, SCORE, capital, shown
from leapmpi.report.page import Section
from leapmpi.report.run_data import SCORED, RunData

_MOST_CLASSES = 40


def section(runs: Sequence[RunData], names: Sequence[str] = ()) -> Section:
    """Return the scores of each run on validation and test vertices, side by side.

    `names` are class names, if the dataset has them.
    """
    figures: list[Figure] = []
    tables: list[Markup] = []
    missing = []
    for number, run in enumerate(runs):
        suffix, of = (f"-{number}", f", {run.label}") if len(runs) > 1 else ("", "")
        found = {split: run.details[split] for split in SCORED if run.details.get(split)}
        if not found:
            missing.append(run.label)
            continue
        figures += _of_run(found, suffix, of, names)
        tables += _class_tables(found, of, names)
    why = "Scores by class, degree and part are not recorded (older runs, tasks on edges, several models, no scores): "
    body: list[Markup] = [note(f"{why}{', '.join(missing)}.")] if missing else []
    return Section("Scores of the best epoch", body, figures, tables)


def _of_run(found: Mapping[str, Any], suffix: str, of: str, names: Sequence[str]) -> list[Figure]:
    """Return the figures of one run; `found` holds the details of each split."""
    figures: list[Figure] = []
    if all(each.get("classes") for each in found.values()):
        figures.append(_by_class(found, of, suffix, names))
    for split, each in found.items():
        if confusion := each.get("confusion"):
            name = f"confusion{'' if split == next(iter(found)) else f'-{split}'}{suffix}"
            figures.append(_confusion(confusion, f"{split}{of}", name, names))
    for key, title in (("by_degree", "in-degree"), ("by_part", "part")):
        if any(each.get(key) for each in found.values()):
            figures.append(_by_group(found, key, title, suffix, of))
    return figures


def _by_group(found: Mapping[str, Any], key: str, title: str, suffix: str, of: str) -> BarFigure:
    """Return the score of each group of vertices, a bar for each split."""
    scores = {split: {name: value for name, _, value in each.get(key, ())} for split, each in found.items()}
    counts = {split: {name: count for name, count, _ in each.get(key, ())} for split, each in found.items()}
    groups = list(dict.fromkeys(name for each in scores.values() for name in each))
    labels = [f"{name} ({' / '.join(shown(each.get(name, 0), COUNT) for each in counts.values())})" for name in groups]
    bars = [
        (split, [np.nan if each.get(name) is None else each[name] for name in groups]) for split, each in scores.items()
    ]
    measure = next(iter(found.values())).get("measure", "score")
    heading = f"{measure} by {title} of the vertex (number of vertices: {' / '.join(found)}){of}"
    name = f"scores-{key.replace('_', '-')}{suffix}"
    return BarFigure(name, capital(heading), labels, bars, SCORE, title, stacked=False, measure=measure)


def _label(number: int, names: Sequence[str]) -> str:
    return f"{number} {names[number]}" if number < len(names) else str(number)


def _figures_of_classes(classes: Mapping[str, Sequence[float]]) -> dict[str, np.ndarray]:
    """Return support, precision, recall and F1 of each class, float64[classes]; NaN where one is undefined."""
    right, wrongly, missed = (np.array(classes[name], np.float64) for name in ("right", "wrongly", "missed"))
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "support": right + missed,
            "precision": right / (right + wrongly),
            "recall": right / (right + missed),
            "F1": 2 * right / (2 * right + wrongly + missed),
        }


def _largest(support: np.ndarray) -> list[int]:
    """Return the classes with most vertices, in their order."""
    return np.sort(np.argsort(-support, kind="stable")[:_MOST_CLASSES]).tolist()


def _by_class(found: Mapping[str, Any], of: str, suffix: str, names: Sequence[str]) -> BarFigure:
    """Return F1 of each class, a bar for each split; of very many classes, those with most vertices."""
    figures = {split: _figures_of_classes(each["classes"]) for split, each in found.items()}
    supports = [each["support"] for each in figures.values()]
    chosen = _largest(supports[0])
    labels = [
        f"{_label(number, names)} ({' / '.join(shown(each[number], COUNT) for each in supports)})" for number in chosen
    ]
    bars = [(split, each["F1"][chosen].tolist()) for split, each in figures.items()]
    left = len(supports[0]) - len(chosen)
    title = f"F1 by class (number of vertices: {' / '.join(found)}){of}"
    title += f"; {left} more with fewer vertices" * (left > 0)
    return BarFigure(f"scores-by-class{suffix}", title, labels, bars, SCORE, "class", stacked=False, measure="F1")


def _class_tables(found: Mapping[str, Any], of: str, names: Sequence[str]) -> list[Markup]:
    """Return a table of precision, recall and F1 of each class on each split, folded."""
    if not all(each.get("classes") for each in found.values()):
        return []
    figures = {split: _figures_of_classes(each["classes"]) for split, each in found.items()}
    kinds = ("support", "precision", "recall", "F1")
    rows = [["class", *(f"{split}: {kind}" for split in figures for kind in kinds)]]
    for number in _largest(next(iter(figures.values()))["support"]):
        cells = (
            shown(each[kind][number], COUNT if kind == "support" else SCORE)
            for each in figures.values()
            for kind in kinds
        )
        rows.append([_label(number, names), *cells])
    return [details(f"Precision and recall by class{of}", table(rows))]


def _confusion(found: Sequence[Sequence[int]], of: str, name: str, names: Sequence[str]) -> HeatFigure:
    """Return the confusion matrix: rows are true classes, columns predicted ones, as shares of the row."""
    size = 1 + max(max(truth, predicted) for truth, predicted, _ in found)
    counts = np.zeros((size, size))
    for truth, predicted, count in found:
        if predicted >= 0:
            counts[truth, predicted] += count
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    labels = [_label(number, names) for number in range(size)]
    columns = [str(number) for number in range(size)]
    title = f"Confusion matrix (rows sum to 1), {of}"
    return HeatFigure(name, title, shares, labels, columns, "class", "predicted", "%")
