"""The table of `leapmpi evaluate --per-class`: a line for each class, label or target of a split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leapmpi.runs.tables.text import aligned, score_text

MOST_ROWS = 40
"""Classes that are shown; those with most vertices, where there are more. JSON has all of them."""

_MOST_CONFUSED = 3


def class_table(found: dict[str, Any], names: Sequence[str] | None = None) -> str:
    """The table of one split, from its class_report (leapmpi/training/scoring); `names` of classes, where known."""
    regression = "mse" in found
    count = len(found["known"])
    kind = "target" if regression else "class" if "confusion" in found else "label"
    figures = ("known", "mse", "mae", "rmse", "r2") if regression else ("support", "precision", "recall", "f1")
    further = ("right", "wrongly", "missed") if kind == "label" else ()

    # The classes with most vertices, in their order.
    size = found[figures[0]]
    shown = sorted(sorted(range(count), key=lambda each: -size[each])[:MOST_ROWS])
    lines = [(kind, *figures, *further, *["taken for"] * (kind == "class"))]
    for each in shown:
        name = str(each) if names is None else f"{each} {names[each]}"
        values = [_text(found[figure][each]) for figure in figures]
        more = (
            [_confused(found["confusion"], each)] if kind == "class" else [_text(found[key][each]) for key in further]
        )
        lines.append((name, *values, *more))
    rest = f"\n{count - len(shown):,} more, with fewer vertices, are in --json" if count > len(shown) else ""
    return aligned(lines) + rest


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else score_text(value)


def _confused(confusion: Sequence[Sequence[int]], each: int) -> str:
    """What a class was taken for most often, such as '3 (12 times), 0 (4)'."""
    wrong = sorted((-count, other) for truth, other, count in confusion if truth == each and other != truth)
    return ", ".join(f"{'none' if other < 0 else other} ({-count:,})" for count, other in wrong[:_MOST_CONFUSED]) or "-"
