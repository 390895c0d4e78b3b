"""The examination: facts of all ranks, the problems in them, printed on rank 0."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from leapmpi.doctor import links, mpi, places, rank
from leapmpi.doctor.checks import Problem, problems
from leapmpi.doctor.text import lines
from leapmpi.gathering import gather_values
from leapmpi.world import World, finish, load_mpi, start

SCHEMA = 2
"""Version of what --json prints."""


def doctor(as_json: bool = False, data: str | None = None, run: str | None = None) -> int:
    """Print what was found; returns 0, or 1 where a problem would keep a job from running or make it slow. Collective.

    `data` and `run` name a dataset and a run folder to look at. Raises LaunchError for a missing MPI or a foreign
    launcher.
    """
    library = load_mpi()
    # As in training, the device is chosen before MPI starts.
    device = rank.choose_device()
    world = start()
    try:
        facts = _facts(library, world, device, data, run)
        found = problems(facts)
        if world.rank == 0:
            _print(facts, found, as_json)
    finally:
        finish(world)
    return int(any(problem.grave for problem in found))


def _facts(library: Any, world: World, device: int | None, data: str | None, run: str | None) -> dict[str, Any]:
    """All facts, the same on all ranks. Collective."""
    ranks = gather_values(world.comm, rank.facts(world, device))
    seen = places.facts(data, run) if world.node_comm.rank == 0 else None
    return {
        "mpi": mpi.facts(library),
        "ranks": ranks,
        "links": links.measured(world, device is not None) if _usable(ranks) else [],
        "places": [each for each in gather_values(world.comm, seen) if each],
        "versions": ranks[0]["versions"],
    }


def _usable(ranks: list[dict[str, Any]]) -> bool:
    """Whether leapmpi's kernels can be loaded everywhere, which the wire needs."""
    return all(each["kernels"]["writable"] for each in ranks)


def _print(facts: dict[str, Any], found: list[Problem], as_json: bool) -> None:
    if as_json:
        text = json.dumps({"schema": SCHEMA, **facts, "problems": [asdict(each) for each in found]}, indent=1)
    else:
        text = "\n".join(lines(facts, found))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
