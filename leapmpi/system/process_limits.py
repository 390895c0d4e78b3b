"""Limits of this process (ulimit) under which libraries crash while they load, reported beforehand."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from leapmpi.errors import ResourceError

LEAST_STACK = 256 << 10
"""Bytes; with less Python itself may crash."""

_REFUSED = ("can't allocate memory", "can't start new thread")
"""Parts of what torch and Python say when they were refused memory."""

_LIMITS = {
    "address_space": (resource.RLIMIT_AS, "the address space", "-v"),
    "data": (resource.RLIMIT_DATA, "memory for data", "-d"),
    "stack": (resource.RLIMIT_STACK, "the stack", "-s"),
}


@dataclass(frozen=True)
class Needs:
    """The least limits, in bytes, under which a program's libraries load and start; graphs and models come on top."""

    address_space: int
    data: int
    stack: int = LEAST_STACK


TRAINING = Needs(1280 << 20, 256 << 20)
"""torch, numba, h5py and MPI: one rank of a tiny job takes 1.3 GiB of address space, 0.4 GiB of data."""

PREPARATION = Needs(384 << 20, 96 << 20)
"""numpy, numba and h5py."""


def check_limits(needs: Needs, what: str) -> None:
    """Raise ResourceError, naming the limit and its mend, where one is too low for `what`. Local."""
    for name, (which, subject, flag) in _LIMITS.items():
        limit, least = resource.getrlimit(which)[0], getattr(needs, name)
        if limit != resource.RLIM_INFINITY and limit < least:
            raise ResourceError(
                f"{subject} is limited to {_size(limit)} (ulimit {flag}), and {what} needs {_size(least)} at the very "
                f"least; raise it: ulimit {flag} {'8192' if name == 'stack' else 'unlimited'}"
            )


def is_lack_of_memory(error: BaseException) -> bool:
    """Return whether Python, numpy or torch was refused memory, or a thread its stack. Pure."""
    # Torch's allocator on a CPU raises RuntimeError: only its text says so.
    refused = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return refused or (isinstance(error, RuntimeError) and any(text in str(error) for text in _REFUSED))


def too_little(error: Exception) -> ResourceError | None:
    """Explain an `error` of a library that found too little memory; None if no limit explains it."""
    limits = memory_limits()
    if not limits:
        return None
    return ResourceError(f"too little memory{limits}: {str(error) or type(error).__name__}; raise the limit")


def _size(count: int) -> str:
    return f"{count / 2**10:,.0f} KiB" if count < 1 << 20 else f"{count / 2**20:,.0f} MiB"


def memory_limits() -> str:
    """Describe the memory limits of this process in a clause, '' without any."""
    found = []
    for which, subject, flag in (_LIMITS["address_space"], _LIMITS["data"]):
        limit, _ = resource.getrlimit(which)
        if limit != resource.RLIM_INFINITY:
            found.append(f"{subject} is limited to {_size(limit)}: ulimit {flag}")
    return f" ({', '.join(found)})" if found else ""
