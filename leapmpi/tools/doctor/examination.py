"""Examination: facts of all ranks and the problems in them, printed on rank 0."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from types import ModuleType
from typing import Any

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.launcher import launched_rank
from leapmpi.comm.world import World, abort, finish, load_mpi, start
from leapmpi.errors import LaunchError, LeapmpiError
from leapmpi.fault_tolerance.abort import DEFECT_CODE
from leapmpi.tools.doctor import job_checks, links, machine_checks
from leapmpi.tools.doctor.facts import choose_device, folder_facts, mpi_facts, rank_facts
from leapmpi.tools.doctor.facts_text import folded, lines
from leapmpi.tools.doctor.problems import Problem

SCHEMA = 2
"""Version of the JSON printed by --json."""

CHECKS = (
    *(machine_checks.cores, machine_checks.gpus, machine_checks.kernels, job_checks.launch, machine_checks.limits),
    *(machine_checks.memory, job_checks.network, job_checks.places, job_checks.rates, job_checks.versions),
)

SECONDS = 300.0
"""Time limit of the examination: a misconfigured network loses messages, and ranks would wait forever."""

_OTHERS_LATER = 2.0
"""Seconds by which the other ranks outlast rank 0, so that rank 0 writes the message."""


def doctor(as_json: bool = False, data: str | None = None, run: str | None = None, measures: bool = False) -> int:
    """Print facts and problems. Returns 1 if a problem would stop or slow down a job, else 0. Collective.

    `data` and `run` name a dataset and a run folder to examine; `measures` measures and keeps the rates of this
    machine. Raises LaunchError if MPI is missing, or the ranks were started by the launcher of another MPI.
    """
    library = load_mpi()
    # As in training, the device is chosen before MPI starts.
    device = choose_device()

    # `stage` names the current activity, for the message of the time limit.
    stage = ["the start of MPI"]
    with _time_limit(stage):
        world = start()
        try:
            facts = _facts(library, world, device, data, run, stage)
            if facts["usable"]:
                stage.append("measuring rates")
                facts["rates"] = _rates(world, device, measures)
            found, rank = problems(facts), world.rank
        except LeapmpiError:
            # Every rank raises it, so the usual path ends the job.
            raise
        except Exception:
            # The other ranks wait for this one, so end them too.
            traceback.print_exc()
            abort(world, DEFECT_CODE)
        finally:
            finish(world)
    # No rank waits for rank 0 any more, should its output fail.
    if rank == 0:
        _print(facts, found, as_json)
    return int(any(problem.grave for problem in found))


def _facts(
    library: ModuleType, world: World, device: int | None, data: str | None, run: str | None, stage: list[str]
) -> dict[str, Any]:
    """Gather all facts, the same on all ranks. Collective."""
    stage.append("gathering facts")
    ranks = all_gather_values(world.comm, rank_facts(world, device))
    seen = folder_facts(data, run) if world.node_comm.rank == 0 else None
    of_nodes = [each for each in all_gather_values(world.comm, seen) if each]
    stage.append("measuring links")
    # The communicator needs kernels on all ranks.
    usable = all(each["kernels"]["writable"] for each in ranks)
    measured = links.measured(world, device is not None) if usable else []
    versions = ranks[0]["versions"]
    about = {"mpi": mpi_facts(library), "ranks": ranks, "links": measured, "places": of_nodes, "versions": versions}
    return {**about, "usable": usable}


def problems(facts: Mapping[str, Any]) -> list[Problem]:
    """Return all problems, grave ones first."""
    return sorted((found for check in CHECKS for found in check(facts)), key=lambda problem: not problem.grave)


def _rates(world: World, device: int | None, measures: bool) -> dict[str, Any]:
    """Return the rates that jobs choose by, measured first if `measures`. Collective."""
    # Imported here: they need torch, and kernels that can be compiled.
    import torch

    from leapmpi.system.worker_threads import set_threads
    from leapmpi.tools.doctor import machine_measurement

    torch.set_num_threads(world.threads)
    set_threads(world.threads)
    where = torch.device("cpu") if device is None else torch.device("cuda", device)
    return machine_measurement.facts(world, where, measures)


def _print(facts: dict[str, Any], found: list[Problem], as_json: bool) -> None:
    """Print facts and problems, as text or as JSON."""
    if as_json:
        text = json.dumps({"schema": SCHEMA, **facts, "problems": [asdict(each) for each in found]}, indent=1)
    else:
        text = folded(lines(facts, found), shutil.get_terminal_size().columns)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@contextmanager
def _time_limit(stage: list[str]) -> Iterator[None]:
    """Run the body; end the job after SECONDS, with a message that names the last `stage`."""
    rank = launched_rank()
    timer = threading.Timer(SECONDS + _OTHERS_LATER * (rank > 0), _end, (rank, stage))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(rank: int, stage: list[str]) -> None:
    sys.stderr.write(
        f"leapmpi: error: rank {rank} waited {SECONDS:.0f} s in {stage[-1]}: messages between ranks do not arrive; run "
        "leapmpi doctor on each host alone, and select the network: OMPI_MCA_btl_tcp_if_include=NETWORK/BITS\n"
    )
    sys.stderr.flush()
    os._exit(LaunchError.exit_code)
