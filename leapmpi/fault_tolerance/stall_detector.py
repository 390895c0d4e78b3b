"""When does a job stand still? Decided from what ranks were seen to do; no clock, thread or process is touched here.

A rank moves when it changes its phase, begins or ends a wait for others, or a message arrives; and, outside a wait,
when its process uses the processor. Waiting for a rank that moves is no standstill, however long it takes: a large
evaluation or a compilation is waited for. A rank that uses the processor and does nothing else is taken for one that
runs in circles after `PATIENCE` times the limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PATIENCE = 10
"""How many times the limit a rank may compute without changing its phase or hearing from another rank."""

_AT_WORK = 0.02
"""Share of one core from which on a process counts as computing."""


@dataclass
class RankActivity:
    """What was seen of one rank: `moved` and `worked` are the times of its last move and of its last computing."""

    moves: int
    processor_seconds: float
    seen: float
    moved: float
    worked: float
    waiting: bool

    @property
    def quiet_since(self) -> float:
        """Since when it has neither moved nor computed."""
        return max(self.moved, self.worked)


class StallDetector:
    """Follows ranks by what they are seen to do; all times are seconds of the observer's own clock."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.paces: dict[int, RankActivity] = {}

    def see(self, now: float, rank: int, moves: int, processor_seconds: float, waiting: bool) -> None:
        """Take note of what `rank` had done by `now`; a rank seen for the first time has just moved."""
        pace = self.paces.get(rank)
        if pace is None:
            self.paces[rank] = RankActivity(moves, processor_seconds, now, now, now, waiting)
            return
        if moves != pace.moves:
            pace.moved = now
        elif not waiting and processor_seconds - pace.processor_seconds > _AT_WORK * (now - pace.seen):
            pace.worked = now
        pace.moves, pace.processor_seconds, pace.seen, pace.waiting = moves, processor_seconds, now, waiting

    def forget(self) -> None:
        """Begin anew: this process itself was stopped for a while, so that nothing is known."""
        self.paces.clear()

    def moves(self, rank: int, now: float, limit: float | None = None) -> bool:
        """Whether `rank` has moved, or computes and is given the time to, within `limit` (by default the limit)."""
        pace, limit = self.paces[rank], limit or self.limit
        return now - pace.quiet_since < limit and now - pace.moved < PATIENCE * self.limit

    def quiet(self, rank: int, now: float) -> float:
        """Seconds since `rank` was last seen to move or compute."""
        return now - self.paces[rank].quiet_since


def late(stamps: Iterable, silent: Iterable[int] = ()) -> list:
    """Those of the `stamps` whose ranks the others wait for; empty when nobody can be told from the rest.

    These are the ranks that are in no wait, or that have stopped giving a sign (`silent`); else those that have begun
    fewer waits than others, since all ranks run the same collectives.
    """
    stamps, silent = list(stamps), set(silent)
    found = [each for each in stamps if not each.waiting or each.rank in silent]
    most = max((each.waits for each in stamps), default=0)
    found = found or [each for each in stamps if each.waits < most]
    return found if len(found) < len(stamps) or len(stamps) == 1 else []
