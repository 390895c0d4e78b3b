"""Versions and processors that differ between ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from leapmpi.runs.tables.rank_table import ranks_text
from leapmpi.tools.doctor.problems import Problem


def find(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong."""
    # Packages.
    for name in sorted({name for rank in facts["ranks"] for name in rank["versions"]}):
        users = defaultdict(list)
        for rank in facts["ranks"]:
            users[rank["versions"].get(name, "missing")].append(rank["rank"])
        if len(users) > 1:
            listed = ", ".join(f"{number} on {ranks_text(ranks)}" for number, ranks in users.items())
            yield Problem(f"{name} differs between ranks: {listed}", "use one environment on all nodes")

    # Processors.
    kinds = defaultdict(list)
    for rank in facts["ranks"]:
        kinds[rank["processor"]].append(rank["rank"])
    if len(kinds) > 1:
        listed = ", ".join(f"{kind} for {ranks_text(ranks)}" for kind, ranks in kinds.items())
        yield Problem(
            f"processors differ: {listed}; results may differ in the last bits, and the fast wait for the slow",
            "ask for one kind of node, under Slurm by --constraint",
            grave=False,
        )
