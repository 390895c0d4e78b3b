"""World in one process: threads, the start and end of MPI."""

import subprocess
import sys

import pytest

from leapmpi.comm.world import default_threads
from tests.support.launch import child_environment, mpirun


@pytest.mark.parametrize(
    ("masks", "threads"),
    [
        ([range(8)], [8]),
        ([range(8), range(8)], [4, 4]),
        ([range(8)] * 3, [2, 2, 2]),
        ([range(2)] * 4, [1, 1, 1, 1]),
        # Bound ranks: every rank has its cores to itself.
        ([range(4), range(4, 8)], [4, 4]),
        ([range(6), range(6, 8)], [6, 2]),
        ([range(8)] * 2 + [range(8, 16)] * 2, [4, 4, 4, 4]),
        ([range(3)] * 3, [1, 1, 1]),
    ],
)
def test_ranks_share_the_cores_that_they_are_bound_to(masks, threads):
    assert [default_threads(masks, rank, {}) for rank in range(len(masks))] == threads


def test_the_users_number_of_threads_stands():
    assert default_threads([range(8)], 0, {"OMP_NUM_THREADS": "3"}) == 3
    assert default_threads([range(8)], 0, {"OMP_NUM_THREADS": "2,4"}) == 2
    assert default_threads([range(8)], 0, {"OMP_NUM_THREADS": "zero"}) == 8


TWICE = """
from leapmpi.comm.world import start, finish
for turn in range(3):
    world = start()
    assert world.comm.allreduce(1) == world.size
    finish(world)
print("ended", world.host)
"""


def test_mpi_can_be_used_again_after_a_job_has_ended():
    alone = subprocess.run(
        [sys.executable, "-c", TWICE], env=child_environment(), capture_output=True, text=True, timeout=60
    )
    assert alone.returncode == 0, alone.stderr
    job = mpirun(2, [sys.executable, "-c", TWICE])
    assert job.returncode == 0, job.stderr
    assert job.stdout.count("ended") == 2


def test_a_script_that_fails_on_one_rank_does_not_hang_at_its_end():
    code = TWICE + "if world_rank: raise RuntimeError('my script')\nimport time\n"
    code = code.replace("finish(world)", "world_rank = world.rank; finish(world)")
    job = mpirun(2, [sys.executable, "-c", code + "time.sleep(0 if world_rank else 30)"], timeout=25)
    assert job.returncode != 0
    assert "my script" in job.stderr


def test_a_request_for_a_checkpoint_at_the_very_end_does_not_turn_success_into_failure():
    # What is registered before MPI starts runs after MPI has ended.
    code = "import atexit, os, signal; atexit.register(lambda: os.kill(os.getpid(), signal.SIGUSR2))\n"
    code += "from leapmpi.comm.world import finish, start\nfinish(start())"
    late = subprocess.run([sys.executable, "-c", code], env=child_environment(), capture_output=True, timeout=60)
    assert late.returncode == 0
