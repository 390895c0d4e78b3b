"""Which epochs a quoted speed is taken from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any


def warm_epochs(
    epochs: Sequence[dict[str, Any]], begun: Collection[int] = (0,)
) -> tuple[Sequence[dict[str, Any]], bool]:
    """The `epochs` with which no start began, and True; all of them, and False, where there is no other.

    begun: positions in `epochs` of those with which a start of the run began; memory and caches filled in them.
    """
    warm = [epoch for position, epoch in enumerate(epochs) if position not in begun]
    return (warm, True) if warm else (epochs, False)


def set_ratios(rows: Sequence[dict[str, Any]]) -> None:
    """Give each row its `ratio`: its `epoch_seconds` to the first row's; None where those of either are not `warm`."""
    first = rows[0]
    for row in rows:
        comparable = first["warm"] and row["warm"] and first["epoch_seconds"] > 0
        row["ratio"] = row["epoch_seconds"] / first["epoch_seconds"] if comparable else None


def seconds_and_ratio(row: dict[str, Any]) -> tuple[str, str]:
    """Both as cells of a table; seconds of epochs that are not warm are marked."""
    cold = "" if row["warm"] else " cold"
    return f"{row['epoch_seconds']:.3f}{cold}", "-" if row["ratio"] is None else f"{row['ratio']:.2f}"


def about_cold(rows: Sequence[dict[str, Any]]) -> str:
    """A line below a table that says what 'cold' means, '' where no row is."""
    if all(row["warm"] for row in rows):
        return ""
    return "cold: no epoch but the first of a start, in which caches fill, and so no ratio; train two epochs or more"
