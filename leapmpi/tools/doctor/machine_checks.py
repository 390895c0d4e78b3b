"""Checks of the machines: cores, GPUs, compiled kernels, limits of processes, memory.

Each function yields the problems of one subject. Facts are plain values (`leapmpi doctor --json` prints them), so a
check needs neither MPI nor a second machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from leapmpi.errors import counted
from leapmpi.runs.text import ranks_text
from leapmpi.system.stale_files import SHARED_MEMORY
from leapmpi.tools.doctor.problems import Problem, by_node

BASE_FILES, FILES_PER_RANK = 256, 2
LEAST_STACK, USUAL_STACK = 1 << 20, 8 << 20
LEAST_LOCKED = 64 << 20

PER_RANK = 64 << 20
"""Bytes that MPI may take in /dev/shm for each rank."""


def cores(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Check cores: oversubscription, ranks bound to too few cores, unset number of threads."""
    for ranks in by_node(facts).values():
        cores = {core for rank in ranks for core in rank["affinity"]}
        threads = sum(rank["threads"] for rank in ranks)
        who = f"{ranks_text(rank['rank'] for rank in ranks)} on {ranks[0]['host']}"

        if threads > len(cores):
            yield Problem(
                f"{who}: {threads} threads share {counted(len(cores), 'core')}",
                "start fewer ranks or threads (OMP_NUM_THREADS, --threads), or request more cores",
            )

        # Binding to one core wastes the others, unless Slurm requested it.
        machine = ranks[0]["machine_cores"] or 0
        bound = all(len(rank["affinity"]) == 1 for rank in ranks)
        if bound and len(cores) < machine and "SLURM_NTASKS" not in ranks[0]["launcher"]:
            mend = "disable binding: mpirun --bind-to none; or give ranks more cores: --map-by slot:pe=CORES"
            if ranks[0]["launcher_cores"] == 1:
                mend = "mpirun itself is limited to one core: allow it more (taskset, container)"
            yield Problem(
                f"{who}: bound to one core each; {machine - len(cores)} of the machine's {machine} cores are unused",
                mend,
                grave=False,
            )
    yield from _unset_threads(facts)


def _unset_threads(facts: Mapping[str, Any]) -> Iterator[Problem]:
    crowded = [rank for ranks in by_node(facts).values() if len(ranks) > 1 for rank in ranks]
    unset = [rank for rank in crowded if not rank["omp_num_threads"]]
    if unset:
        yield Problem(
            f"OMP_NUM_THREADS is not set ({ranks_text(rank['rank'] for rank in unset)}): leapmpi shares the cores of a "
            "node among its ranks, but other libraries start a thread per core in each rank",
            f"export OMP_NUM_THREADS={unset[0]['threads']}",
            grave=False,
        )


def gpus(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Check GPUs: shared by ranks, invisible to torch, or with memory that MPI copies slowly."""
    # Ranks on one GPU wait for each other and share its memory.
    users = defaultdict(list)
    for rank in facts["ranks"]:
        if rank["gpu"] is not None:
            users[rank["host"], rank["gpu"]].append(rank["rank"])
    for (host, gpu), ranks in users.items():
        if len(ranks) > 1:
            yield Problem(
                f"{ranks_text(ranks)} share one GPU ({gpu} on {host})",
                "start one rank per GPU; under Slurm request as many --gpus-per-node as --ntasks-per-node",
            )
    yield from _unseen(facts)
    yield from _segments(facts)


def _unseen(facts: Mapping[str, Any]) -> Iterator[Problem]:
    for rank in facts["ranks"]:
        if rank["torch_error"]:
            yield Problem(
                f"torch is unusable on rank {rank['rank']} ({rank['host']}): {rank['torch_error']}",
                "install the PyTorch build that fits this machine and its driver",
            )

    # A device file without a visible GPU means a driver or build mismatch.
    blind = [rank for rank in facts["ranks"] if rank["gpu_files"] and not rank["gpus"] and not rank["torch_error"]]
    if blind:
        yield Problem(
            f"{blind[0]['host']} has a GPU ({blind[0]['gpu_files'][0]}) but torch sees none "
            f"({ranks_text(rank['rank'] for rank in blind)})",
            "install the PyTorch build that fits the CUDA driver, and check CUDA_VISIBLE_DEVICES",
            grave=False,
        )


def _segments(facts: Mapping[str, Any]) -> Iterator[Problem]:
    growing = [rank["rank"] for rank in facts["ranks"] if "expandable_segments:true" in rank["allocator"].lower()]
    if growing and facts["mpi"]["cuda_aware"]:
        yield Problem(
            f"PYTORCH_CUDA_ALLOC_CONF enables expandable segments ({ranks_text(growing)}), which a CUDA-aware MPI may "
            "copy at a fraction of the speed",
            "unset expandable_segments, or stage through the host: --mpi-device-path host",
        )


def kernels(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Check whether numba can keep compiled kernels."""
    # The ranks of a node share the folder, so one of them is enough.
    for ranks in by_node(facts).values():
        kernels, host = ranks[0]["kernels"], ranks[0]["host"]
        if kernels["error"]:
            yield Problem(f"numba is unusable on {host}: {kernels['error']}", "install numba again")
        elif not kernels["writable"]:
            yield Problem(
                f"the folder for compiled kernels is not writable on {host}: {kernels['folder']}",
                "set NUMBA_CACHE_DIR to a writable folder",
            )
        elif not kernels["lasting"]:
            yield Problem(
                f"compiled kernels are kept in a temporary folder on {host} ({kernels['folder']}); jobs may have "
                "to compile them again",
                "make the home folder writable, or set NUMBA_CACHE_DIR to a permanent folder",
                grave=False,
            )


def limits(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Check process limits (ulimit) that jobs may hit."""
    # MPI opens files (sockets) for each rank.
    needed = BASE_FILES + FILES_PER_RANK * len(facts["ranks"])
    yield from _below(
        facts, "nofile", needed, f"open files are limited to {{}}, a job of this size may need {needed}",
        f"raise it: ulimit -n {max(needed, 4096)}",
    )  # fmt: skip
    yield from _below(
        facts, "stack", LEAST_STACK, "the stack is limited to {} bytes, which compiled kernels may exceed",
        f"raise it: ulimit -s {USUAL_STACK >> 10}",
    )  # fmt: skip
    if any(rank["infiniband"] for rank in facts["ranks"]):
        yield from _below(
            facts, "memlock", LEAST_LOCKED, "locked memory is limited to {} bytes, InfiniBand needs to lock buffers",
            "raise it: ulimit -l unlimited (for Slurm in slurmd's own limits, PropagateResourceLimits)",
        )  # fmt: skip

    limited = [rank["rank"] for rank in facts["ranks"] if rank["limits"]["address_space"] is not None]
    if limited:
        yield Problem(
            f"the address space is limited ({ranks_text(limited)}); CUDA and thread pools reserve more than they use",
            "lift it: ulimit -v unlimited",
            grave=False,
        )


def _below(facts: Mapping[str, Any], name: str, least: int, what: str, mend: str) -> Iterator[Problem]:
    """Yield a problem for each value of the limit `name` below `least`; `{}` in `what` is that value."""
    low = defaultdict(list)
    for rank in facts["ranks"]:
        limit = rank["limits"][name]
        if limit is not None and limit < least:
            low[limit].append(rank["rank"])
    for limit, ranks in low.items():
        yield Problem(f"{ranks_text(ranks)}: {what.format(f'{limit:,}')}", mend)


def memory(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Check shared memory, through which MPI moves messages within a node."""
    for ranks in by_node(facts).values():
        found, host = ranks[0]["shared_memory"], ranks[0]["host"]
        folder = found["folder"] if found else ""
        mend = "mount a larger one: mount -o remount,size=50% /dev/shm; in a container --shm-size=8g"
        if found and SHARED_MEMORY not in (Path(folder), *Path(folder).parents):
            mend = "free some space there, or set TMPDIR to a folder with more"
        if found is None:
            yield Problem(f"{host} has no /dev/shm, through which MPI and ranks of a node share memory", mend)
        elif found["free"] < PER_RANK * len(ranks):
            yield Problem(
                f"{folder} on {host} has {found['free'] >> 20} MiB free for {counted(len(ranks), 'rank')}; "
                f"MPI alone may take {PER_RANK >> 20} MiB each",
                mend,
            )
