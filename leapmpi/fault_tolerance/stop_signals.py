"""Stopping a job before it is done: signals, and the end of Slurm's time, are noticed between steps; all ranks vote.

A signal's handler only takes a note. In every iteration each rank sends one stop request. The maximum over ranks
(an all-reduce) is found while the iteration runs, so the vote costs no round trip, and all ranks get the same result.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from leapmpi.comm.communicator import Communicator
from leapmpi.errors import Interrupted

SIGNALS = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)

_SAME_EVENT = 1.0
"""Seconds within which a second signal counts as the first one, sent by another way."""

_SAME_CAUSE = 10.0
"""The same for a signal of another kind: a scheduler's SIGTERM, which a batch script passes on as SIGUSR2."""

_PATIENCE = 10.0
"""Seconds to wait for squeue."""

_KILLED = 128
"""The exit code of a process that a signal ended is this plus the signal's number."""


class Signals:
    """The SIGTERM, SIGUSR2 or SIGINT that this process was sent.

    `number` is the first signal that came, 0 before. While `polled` is true the checkpointer looks at it between steps;
    otherwise there is nothing to save, and the signal raises Interrupted with `exit_code` where it arrives (None: 128
    plus its number). A second signal always does.
    """

    def __init__(self) -> None:
        """Start without any signal."""
        self.number = 0
        self.polled = False
        self.exit_code: int | None = None
        self._since = 0.0

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Take note of signals while the body runs; afterwards they do what they did before."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self._receive) for each in SIGNALS}
        # A launcher that blocks signals may leave them blocked in its children.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, signal.SIG_DFL if handler is None else handler)

    def _receive(self, number: int, _frame: object) -> None:
        now = time.monotonic()
        name = signal.Signals(number).name
        if self.number and now - self._since < (_SAME_EVENT if number == self.number else _SAME_CAUSE):
            return
        again = self.number != 0
        self.number = number
        self._since = now
        if again:
            raise Interrupted(f"a second signal, {name}, ended the job at once", _KILLED + number)
        if not self.polled:
            how = "interrupted: " * (number == signal.SIGINT)
            raise Interrupted(f"{how}{name} ended the job", self.exit_code or _KILLED + number)


NOTHING, SAVE, STOP = 0, 1, 2
"""Requests of a rank: none, to save a checkpoint, or to stop after saving one."""


@dataclass(frozen=True)
class StopRequest:
    """Request of one rank; its `action` is NOTHING, SAVE or STOP.

    `signal` is the signal that `rank` was sent, 0 when the job's time runs out.
    """

    action: int = NOTHING
    signal: int = 0
    rank: int = 0

    def packed(self) -> int:
        """Pack the request as a number below 2**63: a stop exceeds a save, and a signal the end of the time."""
        return self.action << 48 | self.signal << 32 | self.rank

    @classmethod
    def unpacked(cls, number: int) -> StopRequest:
        """Unpack the number that `packed` made of a request."""
        return cls(number >> 48, number >> 32 & 0xFFFF, number & 0xFFFF_FFFF)

    def reason(self) -> str:
        """Explain to people why training stops."""
        if self.signal == signal.SIGINT:
            return "interrupted"
        if self.signal:
            return f"{signal.Signals(self.signal).name} on rank {self.rank}"
        return "the job's time is running out"


def begin_vote(communicator: Communicator, request: StopRequest) -> Callable[[], StopRequest]:
    """Begin a vote of all ranks with the `request` of this one. Collective.

    What is returned waits for the largest request, the same on all ranks; all ranks must call that too.
    """
    largest = communicator.start_all_reduce_maximum(request.packed())
    return lambda: StopRequest.unpacked(largest())


def job_end(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return the end of the Slurm job in seconds since 1970, None outside of Slurm or where there is no limit.

    From $SLURM_JOB_END_TIME where Slurm sets it, else from squeue. Starts a process, so call it before MPI runs.
    """
    # Newer versions of Slurm set the end.
    end = environment.get("SLURM_JOB_END_TIME", "")
    if end.isdigit() and int(end) > 0:
        return float(end)

    # With others, squeue says how much time is left.
    job = environment.get("SLURM_JOB_ID", "")
    if not job.isdigit():
        return None
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%L"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, env=dict(environment))
    except (OSError, subprocess.SubprocessError):
        return None
    left = seconds_of(answer.stdout.strip())
    return None if left is None else time.time() + left


def seconds_of(text: str) -> float | None:
    """Parse Slurm's [days-][[hours:]minutes:]seconds as seconds; None for UNLIMITED and other words."""
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        return None
    days, _, clock = text.rpartition("-")
    seconds = 0
    for part in clock.split(":"):
        seconds = 60 * seconds + int(part)
    return float(86400 * int(days or 0) + seconds)
