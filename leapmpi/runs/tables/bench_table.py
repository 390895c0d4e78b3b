"""The rows of `leapmpi bench` as tables: what each strategy took, moved and reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leapmpi.runs.tables.columns import aligned

_HEADINGS = (
    *("strategy", "steps", "remote", "s/epoch", "ratio", "core s"),
    *("rows", "remote rows", "MiB sent", "loss", "val", "test"),
)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Seconds, ratios, rows, bytes, loss and scores, then bytes by kind and seconds by phase where any is not 0."""
    lines = [_HEADINGS, *(_line(row) for row in rows)]
    parts = [aligned(lines), _parts(rows, "bytes", "MiB sent", 2**-20), _parts(rows, "phases", "seconds", 1.0)]
    return "\n\n".join([*parts, *_ahead(rows), *_economies(rows), *_ignored(rows)])


def _ahead(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What was done ahead of training, and how much of it training did not wait for."""
    ran = [row for row in rows if row["prefetch"]]
    if not ran:
        return []
    lines = [("seconds ahead of training", "prefetch", "spent", "hidden")]
    for row in ran:
        spent, hidden = row["ahead"]["seconds"], row["ahead"]["hidden"]
        lines.append((row["strategy"], str(row["prefetch"]), f"{spent:.2f}", f"{hidden:.2f}"))
    return [aligned(lines)]


def _economies(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What caches spared and what encodings lost, of the strategies that have one."""
    told = []
    if cached := [row for row in rows if "cache" in row]:
        lines = [("remote rows spared by the cache", "measured", "predicted")]
        names = ("hit_rate", "predicted_hit_rate")
        lines += [(row["strategy"], *(f"{row['cache'][name]:.1%}" for name in names)) for row in cached]
        told.append(aligned(lines))
    if lossy := [row for row in rows if "row_error" in row]:
        lines = [("relative error of rows sent", "mean", "largest")]
        lines += [(row["strategy"], *(f"{row['row_error'][name]:.1e}" for name in ("mean", "max"))) for row in lossy]
        told.append(aligned(lines))
    return told


def _ignored(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Which settings of which strategies do not act."""
    told = [f"{row['strategy']}: {sentence}" for row in rows for sentence in row["ignored"]]
    return ["\n".join(told)] if told else []


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    scores = next((each for each in reversed(row["accuracy"]) if any(v is not None for v in each.values())), {})
    return (
        row["strategy"],
        str(row["time_steps"]),
        row["remote"],
        f"{row['epoch_seconds']:.3f}",
        f"{row['ratio']:.2f}",
        f"{row['core_seconds']:.2f}",
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
