"""World in one process: what launchers promise, threads, the start and end of MPI."""

import subprocess
import sys

import pytest

from leapmpi.comm.launcher import check_launcher, launched_rank, launcher_size, local_rank
from leapmpi.comm.world import default_threads
from leapmpi.errors import LaunchError
from tests.support.launch import child_environment, mpirun

SRUN = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "3", "SLURM_PROCID": "7"}
BATCH_SCRIPT = {"SLURM_STEP_ID": "4294967291", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0", "SLURM_PROCID": "0"}


@pytest.mark.parametrize(
    ("environment", "local", "rank", "size"),
    [
        ({}, 0, 0, None),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, 1, 2, 4),
        ({"PMI_SIZE": "3", "PMI_RANK": "2", "MPI_LOCALRANKID": "2"}, 2, 2, 3),
        ({"PALS_SIZE": "6", "PALS_RANKID": "5", "PALS_LOCAL_RANKID": "1"}, 1, 5, 6),
        (SRUN, 3, 7, 8),
        (BATCH_SCRIPT, 0, 0, None),
        ({"SLURM_LOCALID": "5", "SLURM_JOB_ID": "1", "SLURM_NTASKS": "8"}, 0, 0, None),
        # mpirun inside a Slurm batch script: the launcher nearer to the process counts.
        (BATCH_SCRIPT | {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, 1, 0, 2),
    ],
)
def test_what_the_launcher_says_is_understood(environment, local, rank, size):
    assert local_rank(environment) == local
    assert launched_rank(environment) == rank
    found = launcher_size(environment)
    assert (found and found[1]) == size


@pytest.mark.parametrize(
    ("environment", "launcher"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "Open MPI's mpirun"),
        ({"PMI_SIZE": "4"}, "MPICH-like mpirun"),
        (SRUN | {"SLURM_STEP_NUM_TASKS": "4"}, "Slurm's srun"),
    ],
)
def test_a_foreign_launcher_is_refused_and_both_sides_are_named(environment, launcher):
    with pytest.raises(LaunchError) as caught:
        check_launcher(1, "MPICH 4.2", environment)
    assert launcher in str(caught.value)
    assert "4 ranks" in str(caught.value)
    assert "MPICH 4.2" in str(caught.value)


@pytest.mark.parametrize(
    ("size", "environment"),
    [(4, {"OMPI_COMM_WORLD_SIZE": "4"}), (1, {"OMPI_COMM_WORLD_SIZE": "1"}), (1, {}), (1, BATCH_SCRIPT)],
)
def test_a_fitting_launcher_is_accepted(size, environment):
    check_launcher(size, "Open MPI", environment)


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
