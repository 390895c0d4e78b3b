"""Lights of a verdict: how good something is, the sentence that says so, and advice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

GOOD, FAIR, BAD, UNKNOWN = "good", "fair", "bad", "unknown"

_ORDER = (UNKNOWN, GOOD, FAIR, BAD)


@dataclass(frozen=True)
class Advice:
    """Advice with its `gain`, a share of the time or score (1 and more for faults), and the `level` it implies."""

    gain: float
    level: str
    sentence: str


@dataclass(frozen=True)
class Light:
    """Answer to one question about a run.

    `level` is GOOD, FAIR, BAD or UNKNOWN; `advice` is ordered, most useful first.
    """

    name: str
    level: str
    sentence: str
    advice: list[str]


def light(name: str, sentence: str, advice: Iterable[Advice], known: bool = True) -> Light:
    """Return the light that follows from `advice`: its worst level; without any GOOD, or UNKNOWN if not `known`."""
    found = sorted(advice, key=lambda each: -each.gain)
    level = worst([GOOD if known else UNKNOWN, *(each.level for each in found)])
    return Light(name, level, sentence, [each.sentence for each in found])


def worst(levels: Iterable[str]) -> str:
    """Return the worst of some levels; UNKNOWN if there are none."""
    return max((UNKNOWN, *levels), key=_ORDER.index)
