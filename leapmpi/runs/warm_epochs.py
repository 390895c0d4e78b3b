"""Choice of the epochs that speed is quoted from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any


def warm_epochs(
    epochs: Sequence[dict[str, Any]], begun: Collection[int] = (0,)
) -> tuple[Sequence[dict[str, Any]], bool]:
    """Return the `epochs` that are not the first of a start, and True; all of them and False if there are none.

    begun: positions in `epochs` of the first epoch of each start, in which memory and caches fill.
    """
    warm = [epoch for position, epoch in enumerate(epochs) if position not in begun]
    return (warm, True) if warm else (epochs, False)


def set_ratios(rows: Sequence[dict[str, Any]]) -> None:
    """Set `ratio` of each row: its `epoch_seconds` over the first row's; None unless both are `warm`."""
    first = rows[0]
    for row in rows:
        comparable = first["warm"] and row["warm"] and first["epoch_seconds"] > 0
        row["ratio"] = row["epoch_seconds"] / first["epoch_seconds"] if comparable else None


def seconds_and_ratio(row: dict[str, Any]) -> tuple[str, str]:
    """Return both as table cells; seconds of cold epochs are marked."""
    cold = "" if row["warm"] else " cold"
    return f"{row['epoch_seconds']:.3f}{cold}", "-" if row["ratio"] is None else f"{row['ratio']:.2f}"


def about_cold(rows: Sequence[dict[str, Any]]) -> str:
    """Return the line below a table that explains 'cold'; '' if no row is cold."""
    if all(row["warm"] for row in rows):
        return ""
    return "cold: only first epochs of a start, in which caches fill, so no ratio; train at least two epochs"
