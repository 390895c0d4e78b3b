"""Report of a failure: one line on standard error and in the run's summary, by one rank only.

The sentences about ranks that died or that the job waits for are made here; errors bring theirs. Where no rank was left
to report, the next start of the run reads from its folder how the last one ended.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from leapmpi.errors import Interrupted, LeapmpiError, RunFolderError, one_line
from leapmpi.fault_tolerance.heartbeats import RUNNING, Facts, Heartbeat, is_alive, read_heartbeats
from leapmpi.fault_tolerance.launcher_cleanup import report_line
from leapmpi.fault_tolerance.stall_detector import late_ranks
from leapmpi.runs.file_names import HEARTBEATS_FILE
from leapmpi.runs.run import FAILED, INTERRUPTED, Run
from leapmpi.runs.run_folder import record_failure
from leapmpi.system.kernel_cache import lock_waits

_SURVIVORS = 10.0
"""Seconds to wait for ranks that outlive their rank 0; watchdogs of the same host end them within three."""

_NAP = 0.1

_AT_ONCE = 1.0
"""Seconds between the last signs of life of ranks that count as having ended at once."""


def describe_lost(lost: Sequence[Heartbeat], ranks: int, for_memory: bool) -> str:
    """Describe ranks, of `ranks`, that ended without a report and whose last heartbeats are `lost`.

    for_memory: whether the system has just killed a process for lack of memory.
    """
    names = " and ".join(f"rank {each.rank}/{ranks} on {each.host} in {each.where()}" for each in lost)
    if for_memory:
        return (
            f"lost {names}: most likely killed by the system for lack of memory, as a process was just now; "
            "use a smaller batch, fan-out or hidden width, fewer ranks per node, more nodes, or request more "
            "memory per node"
        )
    return f"lost {names}: killed from outside, out of memory, or crashed"


def describe_stall(
    heartbeats: Mapping[int, Heartbeat], silent: Collection[int], ranks: int, seconds: float, limit: float, seen_by: str
) -> tuple[str, Heartbeat | None]:
    """Describe a job without progress for `seconds`, of a --comm-timeout of `limit`.

    heartbeats: those that the rank called `seen_by` can see, by rank. silent: those that give no sign of life any more.
    Also returns the heartbeat of the rank to blame.
    """
    blamed = late_ranks(heartbeats.values(), silent)
    text = f"no progress for {seconds:.1f} s (--comm-timeout {limit:g})"

    # A rank that is in no wait is named, but not if none waits; where all wait, the network is suspect.
    idle = [each for each in blamed if not each.waiting or each.rank in silent]
    if idle:
        names = " and ".join(f"rank {each.rank}/{ranks} on {each.host}, {each.where()}" for each in idle)
        text += f": the job waits for {names}"
    else:
        places = ", ".join(f"rank {each.rank} on {each.host} in {each.where()}" for each in heartbeats.values())
        all_wait = " though every rank waits for others, as when a network link is down"
        text += all_wait if any(each.waiting for each in heartbeats.values()) else ", and no rank waits for another"
        text += f"; as seen by {seen_by}: {places}"

    if unseen := [str(rank) for rank in range(ranks) if rank not in heartbeats]:
        text += f"; ranks that cannot be seen from here: {', '.join(unseen)}"
    return text, blamed[0] if blamed else None


def report_failure(why: str, folder: Path | None, facts: Facts, status: str = FAILED) -> bool:
    """Report `why` and record it with `facts`, unless another rank has done so; returns whether this rank did.

    `folder` is the run folder, None before there is one; `status` is FAILED or INTERRUPTED.
    """
    if record_failure_once(why, folder, facts, status) or not folder or Run(folder).failure is None:
        if status == INTERRUPTED:
            report_line(f"leapmpi: {Interrupted.label}{one_line(why)}", os.getppid())
        else:
            sys.stderr.write(f"leapmpi: {LeapmpiError.label}{one_line(why)}\n")
            sys.stderr.flush()
        return True
    return False


def record_failure_once(why: str, folder: Path | None, facts: Facts, status: str = FAILED) -> bool:
    """Record in the run folder that the run failed; False where there is none or something is recorded already."""
    return folder is not None and record_failure(folder, why, status, **facts)


def wait_for_silence(folder: Path, patience: float = _SURVIVORS) -> None:
    """Wait until no rank of the start before, whose rank 0 is gone, runs in the run folder any more.

    Raises RunFolderError, which names one, after `patience` seconds.
    """
    # Survivors of a dead rank 0 may still write to the folder until their timeout ends them.
    first, begun = None, time.monotonic()
    while True:
        try:
            found = read_heartbeats(folder / HEARTBEATS_FILE)
        except (OSError, ValueError):
            return
        first, waited = first or found, time.monotonic() - begun
        living = [each for each in found.values() if is_alive(each, first.get(each.rank, each), waited)]
        if not living:
            return
        if waited > patience:
            last = living[0]
            raise RunFolderError(
                f"{folder}: rank {last.rank} of the start before still runs, on {last.host} as process {last.process}, "
                "though its rank 0 is gone; start again once it has ended, after --comm-timeout at the latest, or end "
                "it"
            )
        lock_waits.looked += 1
        time.sleep(_NAP)


def how_it_ended(folder: Path) -> dict[str, Any] | None:
    """Return how the last start in the run folder failed, as in summary.json; None when it did not fail.

    It has the `status` (failed or interrupted), `why`, and the rank with which it began, its host, phase, epoch and
    iteration.

    Called by the holder of the folder's lock, after `wait_for_silence`: no start runs there.
    """
    # What survivors have recorded counts.
    failure = Run(folder).failure
    if failure is not None or Run(folder).finished:
        return failure

    # Else ranks whose last heartbeats show them running were lost.
    try:
        heartbeats = read_heartbeats(folder / HEARTBEATS_FILE)
    except (OSError, ValueError):
        return None
    silent = [each for each in heartbeats.values() if each.state == RUNNING]
    if not silent:
        return None

    # Of those, the ones that stopped first, where the times differ.
    last = max(each.pulse for each in heartbeats.values())
    first = [each for each in silent if each.pulse < last - _AT_ONCE] or silent
    names = ", ".join(f"rank {each.rank} on {each.host} in {each.where()}" for each in first)
    return {
        "status": FAILED,
        "why": f"died without reporting an error: {names}; killed from outside, out of memory, or crashed",
        **first[0].facts(),
    }
