"""Fixtures of cases that run on every rank of a job: see tests/parallel/__main__.py."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from mpi4py import MPI

from leapmpi.comm.world import finish, start
from tests.support import datasets
from tests.support.equality import Case, Runner, check, references


@pytest.fixture
def world_comm() -> MPI.Comm:
    """All ranks of the job, on a communicator of this case alone. Collective."""
    comm = MPI.COMM_WORLD.Dup()
    yield comm
    comm.Free()


@pytest.fixture(scope="module")
def world():
    """All ranks of the job, with one thread each. Collective."""
    found = start(threads=1, comm=MPI.COMM_WORLD)
    yield found
    finish(found)


@pytest.fixture(scope="module")
def folder(world) -> Path:
    """A folder that all ranks see, removed at the end. Collective."""
    path = Path(world.comm.bcast(tempfile.mkdtemp(prefix="leapmpi-test-") if world.rank == 0 else None))
    yield path
    world.comm.barrier()
    if world.rank == 0:
        shutil.rmtree(path)


@pytest.fixture(scope="module")
def base(request, world, folder) -> Path:
    """The folder with the datasets that the module's CASES and their single-process runs read. Collective."""
    cases = request.module.CASES
    datasets.build(world.comm, folder, {case.dataset for case in cases} | {case.alone().dataset for case in cases})
    return folder


@pytest.fixture(scope="module")
def same_steps(request, world, base) -> Callable[[Case], None]:
    """A function that asserts that a case of the module's CASES takes the steps of a single process. Collective."""
    alone = references(request.module.CASES, base, world.comm)
    return lambda case: check(case, Runner(base, world).run(case), alone[case.alone()], world.comm)
