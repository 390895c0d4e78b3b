"""Cores: more threads than cores, ranks bound to too few cores, number of threads not set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leapmpi.runs.tables.rank_table import ranks_text
from leapmpi.tools.doctor.problems import Problem, by_node


def find(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong."""
    for ranks in by_node(facts).values():
        cores = {core for rank in ranks for core in rank["affinity"]}
        threads = sum(rank["threads"] for rank in ranks)
        who = f"{ranks_text(rank['rank'] for rank in ranks)} on {ranks[0]['host']}"

        if threads > len(cores):
            yield Problem(
                f"{who}: {threads} threads share {len(cores)} core{'s' * (len(cores) > 1)}",
                "start fewer ranks or threads (OMP_NUM_THREADS, --threads), or ask for more cores",
            )

        # Bound to one core each, though the machine has more and Slurm did not ask for it.
        machine = ranks[0]["machine_cores"] or 0
        bound = all(len(rank["affinity"]) == 1 for rank in ranks)
        if bound and len(cores) < machine and "SLURM_NTASKS" not in ranks[0]["launcher"]:
            yield Problem(
                f"{who}: bound to one core each, {machine - len(cores)} of the machine's {machine} are left out",
                "let mpirun not bind: --bind-to none; or give ranks more cores: --map-by slot:pe=CORES",
                grave=False,
            )
    yield from _unset_threads(facts)


def _unset_threads(facts: Mapping[str, Any]) -> Iterator[Problem]:
    crowded = [rank for ranks in by_node(facts).values() if len(ranks) > 1 for rank in ranks]
    unset = [rank for rank in crowded if not rank["omp_num_threads"]]
    if unset:
        yield Problem(
            f"OMP_NUM_THREADS is not set ({ranks_text(rank['rank'] for rank in unset)}): leapmpi shares the cores of a "
            "node among its ranks, other libraries would start a thread per core in each",
            f"export OMP_NUM_THREADS={unset[0]['threads']}",
            grave=False,
        )
