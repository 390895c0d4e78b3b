"""Fixtures of cases that run on every rank of a job: see tests/parallel/__main__.py."""

import shutil
import tempfile
from pathlib import Path

import pytest
from mpi4py import MPI

from leapmpi.comm.world import finish, start


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
