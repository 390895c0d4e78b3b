"""Detection of a stalled job by observations of ranks; it touches no clock, thread or process.

A rank moves when it changes its phase, begins or ends a wait for others, or a message arrives; and, outside a wait,
when its process uses the processor. To wait for a rank that moves is not a stall, however long it takes: a large
evaluation or a compilation is waited for. A rank that uses the processor and does nothing else is taken for one in an
endless loop after `PATIENCE` times the limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from leapmpi.fault_tolerance.heartbeats import Heartbeat

PATIENCE = 10
"""Factor of the limit for a rank that computes without changing its phase or hearing from another rank."""

_AT_WORK = 0.02
"""Share of one core from which on a process counts as computing."""


@dataclass
class RankActivity:
    """Observation of one rank: `moved` and `worked` are the times of its last move and of its last computing."""

    moves: int
    processor_seconds: float
    seen: float
    moved: float
    worked: float
    waiting: bool


class StallDetector:
    """Follows ranks by what they are seen to do; all times are seconds of the observer's clock."""

    def __init__(self, limit: float) -> None:
        """Set up; after `limit` seconds without a move a rank counts as still."""
        self.limit = limit
        self.ranks: dict[int, RankActivity] = {}

    def observe(self, now: float, rank: int, moves: int, processor_seconds: float, waiting: bool) -> None:
        """Take note of what `rank` had done by `now`; a rank seen for the first time has just moved.

        It has moved `moves` times and used `processor_seconds` since it started, and may be `waiting` for other ranks.
        """
        activity = self.ranks.get(rank)
        if activity is None:
            self.ranks[rank] = RankActivity(moves, processor_seconds, now, now, now, waiting)
            return

        # A waiting rank's tests for messages use the processor too: they are not work.
        spent = processor_seconds - activity.processor_seconds
        if moves != activity.moves:
            activity.moved = now
        elif not waiting and spent > _AT_WORK * (now - activity.seen):
            activity.worked = now
        activity.moves = moves
        activity.processor_seconds = processor_seconds
        activity.seen = now
        activity.waiting = waiting

    def reset(self) -> None:
        """Forget all observations, as the observer itself was stopped for a while."""
        self.ranks.clear()

    def is_moving(self, rank: int, now: float, limit: float | None = None) -> bool:
        """Return whether `rank` has moved or computed within `limit` seconds, and is in no endless loop."""
        still = self.quiet_seconds(rank, now) >= (limit or self.limit)
        return not still and self.still_seconds(rank, now) < PATIENCE * self.limit

    def still_seconds(self, rank: int, now: float) -> float:
        """Return the seconds since `rank` was last seen to move, whether it computed or not."""
        return now - self.ranks[rank].moved

    def quiet_seconds(self, rank: int, now: float) -> float:
        """Return the seconds since `rank` was last seen to move or compute."""
        return now - max(self.ranks[rank].moved, self.ranks[rank].worked)


def late_ranks(heartbeats: Iterable[Heartbeat], silent: Collection[int] = ()) -> list[Heartbeat]:
    """Return the heartbeats of the ranks that the others wait for; empty when no rank differs from the rest.

    These are the ranks that are in no wait, or have stopped giving a sign of life (`silent`); else those that have
    begun fewer waits than others, since all ranks run the same collectives.
    """
    heartbeats = list(heartbeats)
    found = [each for each in heartbeats if not each.waiting or each.rank in silent]
    most = max((each.waits for each in heartbeats), default=0)
    found = found or [each for each in heartbeats if each.waits < most]
    return found if len(found) < len(heartbeats) or len(heartbeats) == 1 else []
