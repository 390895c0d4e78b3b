"""The table of `leapmpi bench`: time, rows, bytes and scores of each strategy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leapmpi.runs.tables.text import aligned, score_text
from leapmpi.runs.tables.warm_epochs import about_cold, seconds_and_ratio

_HEADINGS = (
    *("strategy", "steps", "remote", "s/epoch", "ratio", "core s"),
    *("rows", "remote rows", "MiB sent", "loss", "val", "test"),
)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Seconds, ratios, rows, bytes, loss and scores; below, bytes by kind and seconds by phase where not all are 0."""
    lines = [_HEADINGS, *(_line(row) for row in rows)]
    parts = [aligned(lines), _parts(rows, "bytes", "MiB sent", 2**-20), _parts(rows, "phases", "seconds", 1.0)]
    parts += [about_cold(rows)] if about_cold(rows) else []
    return "\n\n".join([*parts, *_costs(rows), *_prefetching(rows), *_cache(rows), *_ignored(rows)])


def _costs(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Core-hours of each strategy, and what they cost, where ranks have roles or prices are given."""
    priced = any("cost" in row for row in rows)
    if not priced and not any(row.get("roles") for row in rows):
        return []
    lines = [("an epoch", "compute", "prepare", "core-hours", "busy", "needed", *(["cost"] if priced else []))]
    for row in rows:
        roles = row.get("roles") or {"computing": row["ranks"], "preparing": 0}
        busy = "-" if row.get("busy") is None else f"{row['busy']:.0%}"
        needed = str(roles.get("ranks_needed") or "-")
        shown = (
            row["strategy"],
            str(roles["computing"]),
            str(roles["preparing"]),
            f"{row['core_hours']:.5f}",
            busy,
            needed,
        )
        lines.append((*shown, *([f"{row['cost']:.6f}"] if priced else [])))
    note = "busy: share of the time in which compute ranks work; needed: ranks predicted to prepare as fast as they do"
    return [f"{aligned(lines)}\n{note}"]


def _prefetching(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Seconds spent on prefetching, and how many of them training did not wait for."""
    ran = [row for row in rows if row["prefetch"]]
    if not ran:
        return []
    lines = [("seconds ahead of training", "prefetch", "spent", "hidden")]
    for row in ran:
        spent, hidden = row["ahead"]["seconds"], row["ahead"]["hidden"]
        lines.append((row["strategy"], str(row["prefetch"]), f"{spent:.2f}", f"{hidden:.2f}"))
    return [aligned(lines)]


def _cache(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The table of hit rates of strategies with a cache."""
    cached = [row for row in rows if "cache" in row]
    if not cached:
        return []
    lines = [("remote rows spared by the cache", "measured", "predicted")]
    names = ("hit_rate", "predicted_hit_rate")
    lines += [(row["strategy"], *(f"{row['cache'][name]:.1%}" for name in names)) for row in cached]
    return [aligned(lines)]


def _ignored(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Settings that have no effect on a strategy, a line each."""
    lines = [f"{row['strategy']}: {sentence}" for row in rows for sentence in row["ignored"]]
    return ["\n".join(lines)] if lines else []


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    # The last epoch that was evaluated.
    scores: dict[str, float | None] = next(
        (each for each in reversed(row["accuracy"]) if any(v is not None for v in each.values())), {}
    )
    return (
        row["strategy"],
        str(row["time_steps"]),
        row["remote"],
        *seconds_and_ratio(row),
        f"{row['core_seconds']:.2f}",
        f"{sum(row['rows'].values()):,.0f}",
        f"{row['rows']['remote']:,.0f}",
        f"{sum(row['bytes'].values()) / 2**20:.1f}",
        f"{row['loss'][-1]:.4f}",
        *("-" if (score := scores.get(split)) is None else score_text(score) for split in ("val", "test")),
    )


def _parts(rows: Sequence[dict[str, Any]], name: str, unit: str, scale: float) -> str:
    """The parts of the figure `name` of each row, times `scale`, but for those that are about 0 in all rows."""
    shown = [part for part in rows[0][name] if any(row[name][part] * scale >= 0.005 for row in rows)]
    lines = [(unit, *shown)]
    lines += [(row["strategy"], *(f"{row[name][part] * scale:.2f}" for part in shown)) for row in rows]
    return aligned(lines)
