"""The examination: facts of all ranks, the problems in them, printed on rank 0."""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import asdict
from types import ModuleType
from typing import Any

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.world import World, abort, finish, load_mpi, start
from leapmpi.fault_tolerance.abort import DEFECT_CODE
from leapmpi.tools.doctor import folders, links, mpi, rank
from leapmpi.tools.doctor.facts_text import lines
from leapmpi.tools.doctor.problems import Problem, problems
from leapmpi.tools.doctor.time_limit import time_limit

SCHEMA = 2
"""Version of the JSON that --json prints."""


def doctor(as_json: bool = False, data: str | None = None, run: str | None = None, measures: bool = False) -> int:
    """Print facts and problems. Returns 1 where a problem would stop a job or make it slow, else 0. Collective.

    `data` and `run` name a dataset and a run folder to examine; `measures` keeps the rates of this machine. Raises
    LaunchError where MPI is missing, or the ranks were started by the launcher of another MPI.
    """
    library = load_mpi()
    # As in training, the device is chosen before MPI starts.
    device = rank.choose_device()

    # `stage` names what rank is doing, for the message of the time limit.
    stage = ["the start of MPI"]
    with time_limit(stage):
        world = start()
        try:
            facts = _facts(library, world, device, data, run, stage)
            if _usable(facts["ranks"]):
                stage.append("measuring rates")
                facts["rates"] = _rates(world, device, measures)
            found = problems(facts)
            if world.rank == 0:
                _print(facts, found, as_json)
        except Exception:
            # The other ranks wait for this one.
            traceback.print_exc()
            abort(world, DEFECT_CODE)
        finally:
            finish(world)
    return int(any(problem.grave for problem in found))


def _facts(
    library: ModuleType, world: World, device: int | None, data: str | None, run: str | None, stage: list[str]
) -> dict[str, Any]:
    """All facts, the same on all ranks. Collective."""
    stage.append("gathering facts")
    ranks = all_gather_values(world.comm, rank.facts(world, device))
    seen = folders.facts(data, run) if world.node_comm.rank == 0 else None
    of_nodes = [each for each in all_gather_values(world.comm, seen) if each]
    stage.append("measuring links")
    measured = links.measured(world, device is not None) if _usable(ranks) else []
    versions = ranks[0]["versions"]
    return {"mpi": mpi.facts(library), "ranks": ranks, "links": measured, "places": of_nodes, "versions": versions}


def _rates(world: World, device: int | None, measures: bool) -> dict[str, Any]:
    """The rates by which jobs choose, measured anew where `measures`. Collective."""
    # Imported here: they need torch, and kernels that can be compiled.
    import torch

    from leapmpi.system.jit import set_threads
    from leapmpi.tools.doctor import machine_measurement

    torch.set_num_threads(world.threads)
    set_threads(world.threads)
    where = torch.device("cpu") if device is None else torch.device("cuda", device)
    return machine_measurement.facts(world, where, measures)


def _usable(ranks: list[dict[str, Any]]) -> bool:
    """Whether leapmpi's kernels can be loaded on all ranks, which the communicator needs."""
    return all(each["kernels"]["writable"] for each in ranks)


def _print(facts: dict[str, Any], found: list[Problem], as_json: bool) -> None:
    """Print facts and problems, as text or as JSON."""
    if as_json:
        text = json.dumps({"schema": SCHEMA, **facts, "problems": [asdict(each) for each in found]}, indent=1)
    else:
        text = "\n".join(lines(facts, found))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
