"""Colours of charts: one for each phase, kind of bytes, place of rows and split, on every chart of a page."""

from __future__ import annotations

from collections.abc import Sequence

from leapmpi.comm.byte_counters import KINDS, ROWS
from leapmpi.system.phase_timers import PHASES

LIGHT = (
    *("#1f6feb", "#d9730d", "#1a7f37", "#8250df", "#cf222e", "#0a8a8a"),
    *("#9a6700", "#bf3989", "#4d5dc7", "#57a300", "#953800", "#2f9bc4", "#3b6e57", "#6e7781"),
)
DARK = (
    *("#58a6ff", "#f0883e", "#3fb950", "#bc8cff", "#ff7b72", "#39c5cf"),
    *("#e3b341", "#f778ba", "#8da0ff", "#9be04b", "#d08b5b", "#7fd0f0", "#7cc4a4", "#9198a1"),
)
"""Colours by number on light and on dark pages; the last is grey."""

GREY = len(LIGHT) - 1
"""The colour of what is not a series of its own: the rest, baselines, forecasts."""

_SPLITS = ("val", "test", "train")


def _numbered(names: Sequence[str], first: Sequence[str] = ()) -> dict[str, int]:
    """Number `names` from 0, those of `first` before the others."""
    ordered = [*first, *(each for each in names if each not in first)]
    return {name: number % GREY for number, name in enumerate(ordered)}


_FIXED = {
    **_numbered(KINDS, ("features", "gradients", "ids")),
    **_numbered(ROWS),
    **_numbered(PHASES, ("compute", "exchange", "sample", "reduce", "wait")),
    **_numbered(_SPLITS),
    **{"peak, measured": 0, "data and an iteration, predicted": GREY},
    "other": GREY,
}


def colour_numbers(names: Sequence[str]) -> list[int]:
    """Return the number of the colour of each of `names`: its own on all charts, else by its place."""
    return [_FIXED.get(name, place % GREY) for place, name in enumerate(names)]
