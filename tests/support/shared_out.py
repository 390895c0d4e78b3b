"""Work that one rank can do alone, shared out among the ranks of a job; a failure of one fails all."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from mpi4py import MPI

from leapmpi.comm.flow_control import wait_for

T = TypeVar("T")
R = TypeVar("R")


def shared_out(comm: MPI.Comm, work: Sequence[T], action: Callable[[T], R]) -> list[R]:
    """`action` of each of `work`, each done by one rank of `comm` and given to all. Collective.

    What `action` raises on one rank all ranks raise, so that none of them waits for the others' results.
    """
    found, error = {}, None
    try:
        for number in range(comm.rank, len(work), comm.size):
            found[number] = action(work[number])
    except Exception as caught:
        error = caught
    # Asleep: a rank that is done takes no processor from the others.
    wait_for(comm.Ibarrier)
    told = comm.allgather(None if error is None else f"rank {comm.rank}: {type(error).__name__}: {error}")
    if any(told):
        raise error or RuntimeError("; ".join(filter(None, told)))
    merged = {number: each for part in comm.allgather(found) for number, each in part.items()}
    return [merged[number] for number in range(len(work))]
