"""Ends a launcher that hangs after its ranks have ended, and says past it why they ended.

mpirun ends when all its ranks have, unless it waits for its daemon on a host that is cut off the network: a quarter of
an hour with Open MPI 5, until the kernel gives the connection up. Open MPI 5.0.11 over several hosts may also hang for
ever after ranks have ended with an error. A rank that ends so, or because nothing moves any more, therefore leaves a
process behind. It asks the launcher of its host to end, and ends with it.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from leapmpi.comm.launcher import PRINTING

_NAMES = ("mpirun", "mpiexec", "prterun", "prted", "orterun", "orted", "mpiexec.hydra", "hydra_pmi_proxy")
"""Launchers that may be ended: a rank's parent may also be a shell, or a step of Slurm's that ends by itself."""

_BY_ITSELF = 20.0
"""Seconds that the launcher has to end by itself."""

_AFTER_A_FAILURE = 60.0
"""The same after an error: all ranks have reported long before."""

_BETWEEN_SIGNALS = 2.0
"""Seconds between signals; Open MPI ends at once when three come within five seconds."""


def end_launcher(process: int, by_itself: float = _BY_ITSELF) -> None:
    """Leave a process behind that ends `process`, where it is a launcher and still there in `by_itself` seconds."""
    with suppress(OSError):
        if Path(f"/proc/{process}/comm").read_text().strip() in _NAMES:
            handle = os.pidfd_open(process)
            os.set_inheritable(handle, True)
            quiet = subprocess.DEVNULL
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name, str(handle), str(process), str(by_itself)],
                stdin=quiet, stdout=quiet, stderr=quiet, pass_fds=[handle], start_new_session=True,
            )  # fmt: skip


def report_line(line: str, process: int) -> None:
    """Write `line` to standard error, to that of the launcher `process` itself where that can be reached.

    Open MPI's mpirun prints nothing of its ranks any more once it was interrupted (Ctrl-C).
    """
    text = f"{line}\n"
    with suppress(OSError):
        if Path(f"/proc/{process}/comm").read_text().strip() in PRINTING:
            # Not into a file, where mpirun would write over it.
            place = f"/proc/{process}/fd/2"
            kind = os.stat(place).st_mode
            if stat.S_ISFIFO(kind) or os.path.realpath(place).startswith(("/dev/pts/", "/dev/tty")):
                handle = os.open(place, os.O_WRONLY | os.O_NOCTTY)
                try:
                    os.write(handle, text.encode())
                    return
                finally:
                    os.close(handle)
    sys.stderr.write(text)
    sys.stderr.flush()


def end_launcher_after_failure(process: int, interrupted: bool) -> None:
    """`end_launcher` for a launcher whose ranks end with an error, `interrupted` or not.

    Where a job that was interrupted goes back into Slurm's queue, its batch script takes care of the launcher.
    """
    if not (interrupted and "SLURM_JOB_ID" in os.environ):
        end_launcher(process, _AFTER_A_FAILURE)


def wait_and_end(
    handle: int, process: int, by_itself: float = _BY_ITSELF, between_signals: float = _BETWEEN_SIGNALS
) -> None:
    """Wait for the end of `process`, whose pidfd is `handle`; after `by_itself` seconds end it, with its children.

    It gets three SIGINTs, then it is killed. Its children, such as connections to its daemons, are ended
    after it.
    """
    if select.select([handle], [], [], by_itself)[0]:
        return
    children = _children(process)

    # The last request has more time than the others.
    kinds = [signal.SIGINT, signal.SIGINT, signal.SIGINT, signal.SIGKILL]
    for kind, turns in zip(kinds, [1, 1, 5, 1], strict=True):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, kind)
        if select.select([handle], [], [], turns * between_signals)[0]:
            break

    for kind in (signal.SIGTERM, signal.SIGKILL):
        for child in children:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(child, kind)
        time.sleep(between_signals)


def _children(process: int) -> list[int]:
    found = []
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            found += [os.pidfd_open(int(child)) for child in thread.read_text().split()]
    return found


if __name__ == "__main__":
    wait_and_end(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
