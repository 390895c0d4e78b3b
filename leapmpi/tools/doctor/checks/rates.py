"""The rates by which jobs choose: readable, and measured on a quiet machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leapmpi.tools.doctor.problems import Problem

_DISTURBED = 0.3
"""Takes that differ by more than this share of their median were disturbed."""


def find(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Kept rates that cannot be read, measured ones that differ from take to take."""
    rates = facts.get("rates") or {"error": None, "spread": None}
    if rates["error"]:
        yield Problem(f"jobs are refused: {rates['error']}", "remove the file, or run leapmpi doctor --measure")
    if (rates["spread"] or 0.0) > _DISTURBED:
        yield Problem(
            f"measured rates differ by {rates['spread']:.0%} from take to take",
            "run leapmpi doctor --measure again when nothing else runs on these nodes",
            grave=False,
        )
