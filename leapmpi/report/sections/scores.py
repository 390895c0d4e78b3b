"""Section about the scores of the best epoch: by class, degree and part, and the confusion matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from leapmpi.report.figures import BarFigure, Figure, HeatFigure
from leapmpi.report.markup import Markup, element
from leapmpi.report.numbers import COUNT, shown
from leapmpi.report.page import Section
from leapmpi.report.run_data import RunData

_MOST_CLASSES = 40


def section(runs: Sequence[RunData], names: Sequence[str] = ()) -> Section:
    """Return the scores of each run on validation vertices, or on test vertices if there are none.

    `names` are class names, if the dataset has them.
    """
    figures: list[Figure] = []
    missing = []
    for number, run in enumerate(runs):
        suffix, of = (f"-{number}", f", {run.label}") if len(runs) > 1 else ("", "")
        split = next((each for each in ("val", "test") if run.details.get(each)), None)
        if split is None:
            missing.append(run.label)
            continue
        figures += _of_split(run.details[split], split, suffix, of, names)
    why = "Scores by class, degree and part are not recorded (older runs, tasks on edges, several models, no scores): "
    body: list[Markup] = [element("p", f"{why}{', '.join(missing)}.", class_="note")] if missing else []
    return Section("Scores of the best epoch", body, figures)


def _of_split(found: Mapping[str, Any], split: str, suffix: str, of: str, names: Sequence[str]) -> list[Figure]:
    figures: list[Figure] = []
    measure = found.get("measure", "score")
    if classes := found.get("classes"):
        figures.append(_by_class(classes, f"{split}{of}", suffix, names))
    if confusion := found.get("confusion"):
        figures.append(_confusion(confusion, f"{split}{of}", suffix, names))
    for key, title in (("by_degree", "in-degree"), ("by_part", "part")):
        if groups := found.get(key):
            labels = [f"{label} ({shown(count, COUNT)})" for label, count, _ in groups]
            values = [np.nan if value is None else value for _, _, value in groups]
            name = f"{measure} by {title} of the vertex (number of vertices), {split}{of}"
            figures.append(
                BarFigure(
                    f"scores-{key.replace('_', '-')}{suffix}", name.capitalize(), labels, [(measure, values)], "", title
                )
            )
    return figures


def _label(number: int, names: Sequence[str]) -> str:
    return f"{number} {names[number]}" if number < len(names) else str(number)


def _by_class(classes: Mapping[str, Sequence[float]], of: str, suffix: str, names: Sequence[str]) -> BarFigure:
    """Return precision, recall and F1; of very many classes, those with most vertices."""
    right, wrongly, missed = (np.array(classes[name], np.float64) for name in ("right", "wrongly", "missed"))
    support = right + missed
    order = np.sort(np.argsort(-support, kind="stable")[:_MOST_CLASSES])
    with np.errstate(divide="ignore", invalid="ignore"):
        bars = [
            ("precision", (right / (right + wrongly))[order].tolist()),
            ("recall", (right / support)[order].tolist()),
            ("F1", (2 * right / (2 * right + wrongly + missed))[order].tolist()),
        ]
    labels = [f"{_label(number, names)} ({shown(support[number], COUNT)})" for number in order.tolist()]
    left = len(support) - len(order)
    title = f"By class (vertices that have it), {of}" + f"; {left} more with fewer vertices" * (left > 0)
    return BarFigure(f"scores-by-class{suffix}", title, labels, bars, "", "class", stacked=False)


def _confusion(found: Sequence[Sequence[int]], of: str, suffix: str, names: Sequence[str]) -> HeatFigure:
    """Return the confusion matrix: rows are true classes, columns predicted ones, as shares of the row."""
    size = 1 + max(max(truth, predicted) for truth, predicted, _ in found)
    counts = np.zeros((size, size))
    for truth, predicted, count in found:
        if predicted >= 0:
            counts[truth, predicted] += count
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    labels = [_label(number, names) for number in range(size)]
    columns = [str(number) for number in range(size)]
    title = f"Confusion matrix, as shares of each class's vertices, {of}"
    return HeatFigure(
        f"confusion{suffix}", title, shares, [label[:12] for label in labels], columns, "class", "predicted", "%"
    )
