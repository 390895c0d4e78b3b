"""How the last start of a run ended, read from its folder by the next start: also when no rank was left to report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leapmpi.fault_tolerance.heartbeats import RUNNING, Heartbeat, read_heartbeats
from leapmpi.runs.file_names import HEARTBEATS_FILE
from leapmpi.runs.run import FAILED, Run

_AT_ONCE = 1.0
"""Seconds between the last signs of life of ranks that count as having ended at once."""


def how_it_ended(folder: Path) -> dict[str, Any] | None:
    """How the last start in the run folder failed, as in summary.json: `status` (failed or interrupted), `why`, and the
    rank with which it began, its host, phase, epoch and iteration. None when the last start did not fail."""
    # What survivors have recorded counts.
    failure = Run(folder).failure
    if failure is not None or Run(folder).finished:
        return failure

    # Else ranks whose last heartbeats say that they run were lost.
    try:
        heartbeats = read_heartbeats(folder / HEARTBEATS_FILE)
    except (OSError, ValueError):
        return None
    silent = [each for each in heartbeats.values() if each.state == RUNNING]
    return _about(silent, heartbeats) if silent else None


def _about(silent: Sequence[Heartbeat], heartbeats: Mapping[int, Heartbeat]) -> dict[str, Any]:
    """The failure of the ranks that stopped without a report: of those that stopped first, where the times differ."""
    last = max(each.pulse for each in heartbeats.values())
    first = [each for each in silent if each.pulse < last - _AT_ONCE] or silent
    names = ", ".join(f"rank {each.rank} on {each.host} in {each.where()}" for each in first)
    return {
        "status": FAILED,
        "why": f"lost without a word: {names}; killed from outside, out of memory, or crashed",
        **first[0].facts(),
    }
