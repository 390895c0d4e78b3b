"""Breakdown of scores: by class, by in-degree of the vertex, by part; the confusion matrix.

Each rank counts its own vertices; the counts of all add up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from leapmpi.runs.degree_groups import degree_groups, degree_labels
from leapmpi.scoring.class_counts import confusions, outcomes_by_class

MOST_CLASSES = 1024
"""With more classes, figures of classes are left out."""

MOST_CONFUSED = 64
"""With more classes, the confusion matrix is left out."""

MOST_PARTS = 64
"""With more parts, a group stands for several."""

_MEASURES = {
    "multi-class": "share of right answers",
    "multi-label": "share of right labels",
    "regression": "mean squared error",
}

Sum = Callable[[np.ndarray], None]
"""Replaces float64[k] by its sum over ranks. Collective."""


@dataclass(frozen=True)
class ScoredVertices:
    """Vertices of this rank: outputs float[n, C], labels as metrics get them, int64[n] in-degrees and parts."""

    outputs: np.ndarray
    labels: np.ndarray
    degrees: np.ndarray
    parts: np.ndarray


def breakdown(own: ScoredVertices, answers: str, parts: int, sum_up: Sum) -> dict[str, Any]:
    """Break down the scores of all ranks, as plain values; `answers` is the kind of the task's answers. Collective.

    `measure` names the figure averaged in `by_degree` and `by_part`, lists of (name, vertices, mean or None). `classes`
    holds `right`, `wrongly` and `missed` of each. `confusion` lists (class, predicted class, vertices).
    """
    # All counts go into one array, so that one collective sums them.
    classes = own.outputs.shape[1] if answers != "regression" and own.outputs.shape[1] <= MOST_CLASSES else 0
    confused = classes if answers == "multi-class" and classes <= MOST_CONFUSED else 0
    each = -(-parts // MOST_PARTS)
    known, values = _values(own, answers)
    groups = [
        _sums(degree_groups(own.degrees), known, values, len(degree_labels())),
        _sums(own.parts // each, known, values, -(-parts // each)),
    ]
    by_class = outcomes_by_class(own.outputs, own.labels)[:3] if classes else np.zeros((3, 0))
    table = np.zeros((confused, confused))
    if confused:
        rows = confusions(own.outputs, own.labels)
        # Outputs of NaN predict no class, so the table has no column for them.
        rows = rows[rows[:, 1] >= 0]
        table[rows[:, 0], rows[:, 1]] = rows[:, 2]
    pieces = [*groups, by_class.astype(np.float64), table]
    whole = np.concatenate([piece.reshape(-1) for piece in pieces])
    sum_up(whole)

    # The array is cut into the same pieces again.
    ends = np.cumsum([piece.size for piece in pieces])
    sums = [part.reshape(piece.shape) for part, piece in zip(np.split(whole, ends[:-1]), pieces, strict=True)]
    firsts = range(0, parts, each)
    names = [str(first) if each == 1 else f"{first}-{min(first + each, parts) - 1}" for first in firsts]
    found: dict[str, Any] = {
        "measure": _MEASURES[answers],
        "by_degree": _means(degree_labels(), sums[0]),
        "by_part": _means(names, sums[1]),
    }
    if classes:
        figures = ("right", "wrongly", "missed")
        found["classes"] = dict(zip(figures, sums[2].astype(np.int64).tolist(), strict=True))
    if confused:
        places = np.argwhere(sums[3] > 0)
        found["confusion"] = [[int(a), int(b), int(sums[3][a, b])] for a, b in places]
    return found


def _values(own: ScoredVertices, answers: str) -> tuple[np.ndarray, np.ndarray]:
    """Return bool[n], whether each vertex has a label, and float64[n], the averaged figure."""
    if answers == "multi-class":
        return own.labels >= 0, (own.outputs.argmax(axis=1) == own.labels).astype(np.float64)
    labelled = ~np.isnan(own.labels)
    counts = np.maximum(1, labelled.sum(axis=1))
    if answers == "multi-label":
        right = ((own.outputs > 0) == (own.labels > 0.5)) & labelled
        return labelled.any(axis=1), right.sum(axis=1) / counts
    errors = np.where(labelled, (own.outputs.astype(np.float64) - own.labels) ** 2, 0.0)
    return labelled.any(axis=1), errors.sum(axis=1) / counts


def _sums(group: np.ndarray, known: np.ndarray, values: np.ndarray, groups: int) -> np.ndarray:
    """Count the labelled vertices of each group, and sum their values: float64[2, groups]."""
    return np.stack(
        [
            np.bincount(group[known], minlength=groups).astype(np.float64),
            np.bincount(group[known], values[known], minlength=groups),
        ]
    )


def _means(names: Sequence[str], sums: np.ndarray) -> list[list[Any]]:
    """List name, number of vertices and mean of each group that has any."""
    return [
        [name, int(count), float(total / count)]
        for name, count, total in zip(names, *sums.tolist(), strict=True)
        if count
    ]
