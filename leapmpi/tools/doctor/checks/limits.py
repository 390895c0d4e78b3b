"""Limits of a process (ulimit) that jobs run into."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from leapmpi.runs.tables.rank_table import ranks_text
from leapmpi.tools.doctor.problems import Problem

BASE_FILES, FILES_PER_RANK = 256, 2
LEAST_STACK, USUAL_STACK = 1 << 20, 8 << 20
LEAST_LOCKED = 64 << 20


def find(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong."""
    # MPI opens files (sockets) for each rank.
    needed = BASE_FILES + FILES_PER_RANK * len(facts["ranks"])
    yield from _below(
        facts, "nofile", needed, f"open files are limited to {{}}, a job of this size may need {needed}",
        f"raise it: ulimit -n {max(needed, 4096)}",
    )  # fmt: skip
    yield from _below(
        facts, "stack", LEAST_STACK, "the stack is limited to {} bytes, which compiled kernels may exceed",
        f"raise it: ulimit -s {USUAL_STACK >> 10}",
    )  # fmt: skip
    if any(rank["infiniband"] for rank in facts["ranks"]):
        yield from _below(
            facts, "memlock", LEAST_LOCKED, "locked memory is limited to {} bytes, InfiniBand needs to lock buffers",
            "raise it: ulimit -l unlimited (for Slurm in slurmd's own limits, PropagateResourceLimits)",
        )  # fmt: skip

    limited = [rank["rank"] for rank in facts["ranks"] if rank["limits"]["address_space"] is not None]
    if limited:
        yield Problem(
            f"the address space is limited ({ranks_text(limited)}); CUDA and thread pools reserve more than they use",
            "lift it: ulimit -v unlimited",
            grave=False,
        )


def _below(facts: Mapping[str, Any], name: str, least: int, what: str, mend: str) -> Iterator[Problem]:
    """A problem for each value of the limit `name` below `least`; `{}` in `what` is that value."""
    low = defaultdict(list)
    for rank in facts["ranks"]:
        limit = rank["limits"][name]
        if limit is not None and limit < least:
            low[limit].append(rank["rank"])
    for limit, ranks in low.items():
        yield Problem(f"{ranks_text(ranks)}: {what.format(f'{limit:,}')}", mend)
