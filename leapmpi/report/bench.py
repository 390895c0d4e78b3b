"""The rows of `leapmpi bench` as tables: what each strategy took, moved and reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leapmpi.report.columns import aligned

_HEADINGS = (
    *("strategy", "steps", "remote", "s/epoch", "ratio"),
    *("rows", "remote rows", "MiB sent", "loss", "val", "test"),
)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Seconds, ratios, rows, bytes, loss and scores, then bytes by kind and seconds by phase where any is not 0."""
    lines = [_HEADINGS, *(_line(row) for row in rows)]
    return "\n\n".join(
        (aligned(lines), _parts(rows, "bytes", "MiB sent", 2**-20), _parts(rows, "phases", "seconds", 1.0))
    )


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    scores = next((each for each in reversed(row["accuracy"]) if any(v is not None for v in each.values())), {})
    return (
        row["strategy"],
        str(row["time_steps"]),
        row["remote"],
        f"{row['epoch_seconds']:.3f}",
        f"{row['ratio']:.2f}",
        f"{sum(row['rows'].values()):,.0f}",
        f"{row['rows']['remote']:,.0f}",
        f"{sum(row['bytes'].values()) / 2**20:.1f}",
        f"{row['loss'][-1]:.4f}",
        *("-" if scores.get(split) is None else f"{scores[split]:.4f}" for split in ("val", "test")),
    )


def _parts(rows: Sequence[dict[str, Any]], name: str, unit: str, scale: float) -> str:
    shown = [part for part in rows[0][name] if any(row[name][part] * scale >= 0.005 for row in rows)]
    lines = [(unit, *shown)]
    lines += [(row["strategy"], *(f"{row[name][part] * scale:.2f}" for part in shown)) for row in rows]
    return aligned(lines)
