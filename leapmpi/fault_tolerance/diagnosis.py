"""What the watchdog says of ranks that were lost or that the job waits for, in one sentence each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from leapmpi.fault_tolerance.heartbeats import Heartbeat
from leapmpi.fault_tolerance.stall_detector import late


def about_the_dead(lost: Sequence[Heartbeat], ranks: int, for_memory: bool) -> str:
    """Of ranks that ended without a word; `for_memory`: the system has killed a process for lack of memory."""
    names = " and ".join(f"rank {each.rank}/{ranks} on {each.host} in {each.where()}" for each in lost)
    if for_memory:
        return (
            f"lost {names}: most likely killed by the system for lack of memory, as a process was just now; use a "
            "smaller batch, fan-out or hidden width, fewer ranks per node, more nodes, or ask for more memory per node"
        )
    return f"lost {names}: killed from outside, out of memory, or crashed"


def about_the_late(
    stamps: Mapping[int, Heartbeat], silent: Collection[int], ranks: int, limit: float, seen_by: str
) -> tuple[str, Heartbeat | None]:
    """Of a job in which nothing moves, and the rank to blame where one can be told.

    Args:
        stamps: what each rank that can be seen says, by rank.
        silent: those of them that have stopped giving a sign.
        ranks: in the job.
        limit: seconds in which nothing has moved.
        seen_by: the name of the rank that looks.
    """
    blamed = late(stamps.values(), silent)
    idle = [each for each in blamed if not each.waiting or each.rank in silent]
    text = f"nothing has moved for {limit:g} s (--comm-timeout)"
    if idle:
        names = " and ".join(f"rank {each.rank}/{ranks} on {each.host}, {each.where()}" for each in idle)
        text += f": the job waits for {names}"
    else:
        places = ", ".join(f"rank {each.rank} on {each.host} in {each.where()}" for each in stamps.values())
        text += f" though every rank waits for others, as when a network link is down; as seen by {seen_by}: {places}"
    if unseen := [str(rank) for rank in range(ranks) if rank not in stamps]:
        text += f"; ranks that cannot be seen from here: {', '.join(unseen)}"
    return text, blamed[0] if blamed else None
