"""Figures of each class, label or target alone, as plain lists, for `leapmpi evaluate --per-class`."""

from __future__ import annotations

from typing import Any

import numpy as np

from leapmpi.scoring.class_counts import added_up, confusions, outcomes_by_class
from leapmpi.scoring.moments import COUNT, combined, errors_by_target, moments

Outcome = tuple[np.ndarray, np.ndarray]
"""Outputs float[n, C] and labels of some vertices."""


def counts_of(outcomes: list[Outcome], regression: bool) -> tuple[np.ndarray, np.ndarray]:
    """Count the figures of a report by column, and confusions int64[k, 3], from one rank's `outcomes`. Pure.

    Figures are float64[5, C] moments of a regression, else int64[4, C] outcomes by class.
    """
    if regression:
        return combined(np.stack([moments(*each) for each in outcomes])), np.zeros((0, 3), np.int64)
    by_class = np.sum([outcomes_by_class(*each) for each in outcomes], axis=0)
    single = outcomes[0][1].ndim == 1
    found = [confusions(*each) for each in outcomes] if single else [np.zeros((0, 3), np.int64)]
    return by_class, added_up(np.concatenate(found))


def report(figures: np.ndarray, confused: np.ndarray, regression: bool) -> dict[str, list]:
    """Make the report from the `counts_of` of all ranks: `figures` (ranks, rows, C), `confused` int64[k, 3]. Pure.

    Classes and labels have `support` (vertices that have it), `known`, `right`, `wrongly` (predicted though absent),
    `missed`, `precision`, `recall` and `f1`, None where the denominator is 0. Classes also have `confusion`, lists of
    (class, predicted class or -1 for none, vertices). Targets have `known`, `mse`, `mae`, `rmse` and `r2`.
    """
    if regression:
        whole = combined(figures)
        known = {"known": whole[COUNT].astype(int).tolist()}
        return known | {name: _plain(values) for name, values in errors_by_target(whole).items()}
    right, wrongly, missed, known = figures.sum(axis=0)
    # Classes that never occur divide by 0; `_plain` makes None of that.
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = {
            "precision": right / (right + wrongly),
            "recall": right / (right + missed),
            "f1": 2 * right / (2 * right + wrongly + missed),
        }
    counts = {"support": right + missed, "known": known, "right": right, "wrongly": wrongly, "missed": missed}
    found: dict[str, Any] = {name: each.tolist() for name, each in counts.items()}
    found |= {name: _plain(each) for name, each in shares.items()}
    return found | ({"confusion": added_up(confused).tolist()} if len(confused) else {})


def _plain(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]
