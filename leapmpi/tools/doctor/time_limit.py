"""A time limit for the examination: on a misconfigured network, messages get lost and ranks would wait forever."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from leapmpi.comm.launcher import launched_rank
from leapmpi.errors import LaunchError

SECONDS = 300.0

_OTHERS_LATER = 2.0
"""Seconds by which the other ranks end after rank 0, so that rank 0 writes the message."""


@contextmanager
def time_limit(stage: list[str]) -> Iterator[None]:
    """Run the body; after SECONDS end this process, and with it the job, with a message that names the last `stage`."""
    rank = launched_rank()
    timer = threading.Timer(SECONDS + _OTHERS_LATER * (rank > 0), _end, (rank, stage, SECONDS))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(rank: int, stage: list[str], seconds: float) -> None:
    sys.stderr.write(
        f"leapmpi: error: rank {rank} waited {seconds:.0f} s in {stage[-1]}: messages between ranks do not arrive; run "
        "leapmpi doctor on each host alone, and name the network by OMPI_MCA_btl_tcp_if_include=NETWORK/BITS\n"
    )
    sys.stderr.flush()
    os._exit(LaunchError.exit_code)
