"""How the last start of a run ended, read from its folder by the next one: also when nobody was left to tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leapmpi.fault_tolerance.heartbeats import RUNNING, Heartbeat, read_heartbeats
from leapmpi.runs.run import FAILED, Run
from leapmpi.runs.run_folder import HEARTBEATS_FILE

_AT_ONCE = 1.0
"""Seconds between the last signs of ranks that count as having ended together."""


def how_it_ended(folder: Path) -> dict[str, Any] | None:
    """The `status` (failed or interrupted) of the last start in the run folder, `why`, and what is known of the rank
    that it began with, as in summary.json; None when there was no such end."""
    failure = Run(folder).failure
    if failure is not None or Run(folder).finished:
        return failure
    try:
        stamps = read_heartbeats(folder / HEARTBEATS_FILE)
    except (OSError, ValueError):
        return None
    silent = [each for each in stamps.values() if each.state == RUNNING]
    return _about(silent, stamps) if silent else None


def _about(silent: list[Heartbeat], stamps: dict[int, Heartbeat]) -> dict[str, Any]:
    """The story of the ranks that stopped without a word: of those that stopped first, where they can be told."""
    last = max(each.pulse for each in stamps.values())
    first = [each for each in silent if each.pulse < last - _AT_ONCE] or silent
    names = ", ".join(f"rank {each.rank} on {each.host} in {each.where()}" for each in first)
    return {
        "status": FAILED,
        "why": f"lost without a word: {names}; killed from outside, out of memory, or crashed",
        **first[0].facts(),
    }
