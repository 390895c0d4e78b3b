"""Rule R2 on real ranks: every pair of options takes the steps of a single process, and counts what it moves."""

import shutil
import tempfile
from pathlib import Path

import pytest

from leapmpi.world import start
from tests.parallel import datasets
from tests.parallel.equality import OPTIONS, Case, Runner, check, references
from tests.parallel.pairs import pairwise

CASES = [Case(**values) for values in pairwise(OPTIONS)]


@pytest.fixture(scope="module")
def world():
    from mpi4py import MPI

    return start(threads=1, comm=MPI.COMM_WORLD)


@pytest.fixture(scope="module")
def base(world):
    folder = Path(world.comm.bcast(tempfile.mkdtemp(prefix="leapmpi-equality-") if world.rank == 0 else None))
    needed = {case.dataset for case in CASES} | {datasets.whole(labels) for labels in datasets.LABELS}
    datasets.build(world.comm, folder, needed)
    yield folder
    world.comm.barrier()
    if world.rank == 0:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def alone(world, base):
    return references(CASES, base, world.comm)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.strategy}-{case.partition}-{case.model}-{case.batch}")
def test_the_steps_are_those_of_a_single_process(case, base, alone, world):
    check(case, Runner(base, world).run(case), alone[case.alone()], world.comm)
