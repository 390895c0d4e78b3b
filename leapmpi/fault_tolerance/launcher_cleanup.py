"""What to do when the launcher would outlive its job.

mpirun ends when all its ranks have, unless it waits for its daemon on a host that is cut off the network: a quarter of
an hour with Open MPI 5, until the kernel gives the connection up. Open MPI 5.0.11 over several hosts may also hang for
ever after ranks have ended with an error. A rank that ends so, or because nothing moves any more, therefore leaves a
process behind, which asks the launcher of its host to end, and ends with it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_NAMES = ("mpirun", "mpiexec", "prterun", "prted", "orterun", "orted", "mpiexec.hydra", "hydra_pmi_proxy")
"""What may be asked to end: a rank's parent may also be a shell, or a step of Slurm's that ends by itself."""

_BY_ITSELF = 20.0
"""Seconds that the launcher has to end by itself."""

_AFTER_A_FAILURE = 60.0
"""The same after an error: the last words of all ranks come earlier."""

_ASKED = 2.0
"""Seconds between requests; Open MPI takes three within five seconds for an order."""


def outlived_by_none(process: int, by_itself: float = _BY_ITSELF) -> None:
    """See to it that the launcher `process`, where it is one, is ended if it has not `by_itself` seconds from now."""
    with suppress(OSError):
        if Path(f"/proc/{process}/comm").read_text().strip() in _NAMES:
            handle = os.pidfd_open(process)
            os.set_inheritable(handle, True)
            quiet = subprocess.DEVNULL
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name, str(handle), str(process), str(by_itself)],
                stdin=quiet, stdout=quiet, stderr=quiet, pass_fds=[handle], start_new_session=True,
            )  # fmt: skip


def outlived_after_a_failure(process: int, interrupted: bool) -> None:
    """The same for a launcher whose ranks end with an error, `interrupted` or not.

    Where a job that was interrupted goes back into Slurm's queue, its batch script sees to that.
    """
    if not (interrupted and "SLURM_JOB_ID" in os.environ):
        outlived_by_none(process, _AFTER_A_FAILURE)


def end(handle: int, process: int, by_itself: float = _BY_ITSELF, asked: float = _ASKED) -> None:
    """Wait for the end of `process`, which `handle`, a pidfd, means; ask it to end, three times; then kill it.

    Children of one that had to be asked, such as connections to its daemons, are ended after it.
    """
    if select.select([handle], [], [], by_itself)[0]:
        return
    children = _children(process)
    patience = [asked, asked, 5 * asked, asked]
    for seconds, kind in zip(patience, [signal.SIGINT, signal.SIGINT, signal.SIGINT, signal.SIGKILL], strict=True):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, kind)
        if select.select([handle], [], [], seconds)[0]:
            break
    for kind in (signal.SIGTERM, signal.SIGKILL):
        for child in children:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(child, kind)
        time.sleep(asked)


def _children(process: int) -> list[int]:
    """pidfds of the children of `process`."""
    found = []
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            found += [os.pidfd_open(int(child)) for child in thread.read_text().split()]
    return found


if __name__ == "__main__":
    end(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
