"""Facts about this process from the launcher (mpirun, srun), in environment variables, known before MPI starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from leapmpi.errors import LaunchError

PRINTING = ("mpirun", "mpiexec", "prterun", "orterun")
"""Launchers of Open MPI, which write what ranks print to their own output."""

_FORWARDING = {*PRINTING, "mpiexec.hydra"}
_PROXY = "hydra_pmi_proxy"
"""Process of MPICH between a rank and its launcher."""

_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "PALS_SIZE", "SLURM_STEP_NUM_TASKS")
_RANK_VARIABLES = (
    *("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID"),
    "SLURM_PROCID",
)
_LOCAL_RANK_VARIABLES = (
    *("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID"),
    "SLURM_LOCALID",
)


def local_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return this process's number on its node, known from the launcher before MPI starts; 0 when there is none."""
    return (_first_number(_LOCAL_RANK_VARIABLES, environment) or ("", 0))[1]


def launched_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return this process's rank as its launcher numbered it, known before MPI starts; 0 when nothing launched it."""
    return (_first_number(_RANK_VARIABLES, environment) or ("", 0))[1]


def launcher_size(environment: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """Return the variable and number of ranks that the launcher promises, or None without a launcher."""
    return _first_number(_SIZE_VARIABLES, environment)


def terminal_of_launcher(process: int) -> str | None:
    """Return the terminal to which the launcher `process` (or its parent) writes what ranks print, such as /dev/pts/3.

    None if it writes to a file or a pipe, or runs on another host, as for all ranks but those beside it.
    """
    with suppress(OSError, ValueError, IndexError):
        while (name := Path(f"/proc/{process}/comm").read_text().strip()) == _PROXY:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        place = os.path.realpath(f"/proc/{process}/fd/1")
        if name in _FORWARDING and place.startswith(("/dev/pts/", "/dev/tty")):
            return place
    return None


def columns_of(terminal: str, otherwise: int = 80) -> int:
    """Return the width of the terminal called `terminal`."""
    with suppress(OSError):
        handle = os.open(terminal, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            return os.get_terminal_size(handle).columns or otherwise
        finally:
            os.close(handle)
    return otherwise


def _first_number(names: tuple[str, ...], environment: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the first of the variables `names` that holds a number, and the number."""
    # Those of Slurm count where srun started this process: a batch script has a step id too, but no task of a step.
    in_step = environment.get("SLURM_STEP_ID", "") not in ("", "4294967291") and "SLURM_STEP_NUM_TASKS" in environment
    for name in names:
        if environment.get(name, "").isdigit() and (in_step or not name.startswith("SLURM")):
            return name, int(environment[name])
    return None


def check_launcher(size: int, library: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raise LaunchError when the launcher promised more ranks than MPI sees: a foreign mpirun."""
    promised = launcher_size(environment)
    if promised and promised[1] != size and size == 1:
        launcher = "Open MPI's mpirun" if promised[0].startswith("OMPI") else "an MPICH-like mpirun"
        launcher = "Slurm's srun" if promised[0].startswith("SLURM") else launcher
        error = LaunchError(
            f"{launcher} started {promised[1]} ranks ({promised[0]}) but MPI sees 1: the launcher does not belong to "
            f"the MPI library in use ({library}); use that library's own mpirun, or install mpi4py against the "
            "launcher's MPI"
        )
        # All ranks find the same.
        error.agreed = True
        raise error
