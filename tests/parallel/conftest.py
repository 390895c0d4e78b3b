"""Fixtures of cases that run on every rank of a job: see tests/parallel/__main__.py."""

import pytest
from mpi4py import MPI


@pytest.fixture
def world_comm() -> MPI.Comm:
    """All ranks of the job, on a communicator of this case alone. Collective."""
    comm = MPI.COMM_WORLD.Dup()
    yield comm
    comm.Free()
