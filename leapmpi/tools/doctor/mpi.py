"""Facts about the MPI library."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from leapmpi.comm.launcher import launcher_size
from leapmpi.comm.world import cuda_aware, library_file, library_name


def facts(mpi: ModuleType) -> dict[str, Any]:
    """Vendor, version, file, thread level, launcher, and whether MPI takes device memory. Call after MPI's start."""
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
