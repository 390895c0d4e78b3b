"""Shared memory, through which MPI moves messages within a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leapmpi.tools.doctor.problems import Problem, by_node

PER_RANK = 64 << 20
"""Bytes that MPI may take in /dev/shm for each rank."""


def find(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong."""
    for ranks in by_node(facts).values():
        found, host = ranks[0]["shared_memory"], ranks[0]["host"]
        mend = "mount a larger one: mount -o remount,size=50% /dev/shm; in a container --shm-size=8g"
        if found is None:
            yield Problem(f"{host} has no /dev/shm, where MPI and ranks of a node share memory", mend)
        elif found["free"] < PER_RANK * len(ranks):
            yield Problem(
                f"/dev/shm on {host} has {found['free'] >> 20} MiB free for {len(ranks)} rank{'s' * (len(ranks) > 1)}; "
                f"MPI alone may take {PER_RANK >> 20} MiB each",
                mend,
            )
