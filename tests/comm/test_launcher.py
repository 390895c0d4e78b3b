"""What launchers say before MPI starts, and launchers that do not belong to the MPI library."""

import fcntl
import os
import shutil
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

from leapmpi.comm.launcher import (
    check_launcher,
    columns_of,
    launched_rank,
    launcher_size,
    local_rank,
    terminal_of_launcher,
)
from leapmpi.errors import LaunchError

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


def test_the_terminal_of_a_launcher_is_that_to_which_it_writes(tmp_path):
    """A process called mpirun on a pseudo-terminal 52 columns wide, and one whose output is a pipe."""
    launcher = tmp_path / "mpirun"
    launcher.symlink_to(shutil.which("sleep"))
    main, other = os.openpty()
    fcntl.ioctl(main, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 52, 0, 0))
    start = [launcher, "60"]
    with subprocess.Popen(start, stdout=other) as shown, subprocess.Popen(start, stdout=subprocess.PIPE) as piped:
        try:
            # Linux closes the pipe that Popen waits for before it renames the process.
            deadline = time.monotonic() + 10
            while any(Path(f"/proc/{each.pid}/comm").read_text() != "mpirun\n" for each in (shown, piped)):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            place = terminal_of_launcher(shown.pid)
            assert place == os.ttyname(other)
            assert columns_of(place) == 52
            assert terminal_of_launcher(piped.pid) is None
            # A shell is not a launcher.
            assert terminal_of_launcher(os.getpid()) is None
        finally:
            shown.kill()
            piped.kill()
    assert columns_of("/dev/null") == 80
