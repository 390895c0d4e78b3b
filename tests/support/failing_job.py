"""One rank of a training job in which something goes wrong on some ranks:

    jobs/mpirun/local 3 python -m tests.support.failing_job WHAT RANKS train DATA ...

WHAT: raise (a defect), refuse (a user's error on this rank alone), interrupt, kill (SIGKILL), stop (SIGSTOP), sleep for
ever, compute for BUSY seconds, then wait as long for a kernel that another process compiles, and go on, limit (allocate
more than RLIMIT_AS allows), or group (use more than a control group's limit); RANKS: such as 0,2.
It happens inside the step of epoch 1, iteration 2. Further arguments are those of leapmpi.
"""

import fcntl
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

from leapmpi.cli.main import main
from leapmpi.engine.engine import Engine
from leapmpi.errors import DataError
from leapmpi.system.kernel_cache import locked

BUSY = 4.0
ROOM = 64 << 20
genuine_step = Engine.forward_backward
what, ranks, *command = sys.argv[1:]


def step(engine, minibatch):
    """The step of the strategy, but for the one that fails."""
    rank = engine.ctx.communicator.rank
    if (minibatch.schedule.epoch, minibatch.schedule.iteration) == (1, 2) and str(rank) in ranks.split(","):
        with engine.ctx.phases("compute"):
            fail()
    return genuine_step(engine, minibatch)


def fail():
    """Fail in the way that WHAT names."""
    if what == "raise":
        raise RuntimeError("the feature store\nis on fire")
    if what == "refuse":
        raise DataError("part-00001.h5 went away; bring it back")
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "sleep":
        time.sleep(1000)
    if what == "compute":
        begin = time.monotonic()
        while time.monotonic() < begin + BUSY:
            pass
        wait_for_kernel(Path(tempfile.mkdtemp(), "kernel.lock"))
        return
    if what == "limit":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, resource.RLIM_INFINITY))
        torch.ones(ROOM)
    if what == "group":
        # Made, and removed again, by the test.
        (Path(os.environ["LEAPMPI_TEST_GROUP"]) / "cgroup.procs").write_text(str(os.getpid()))
        torch.ones(ROOM)
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[what])


def wait_for_kernel(lock):
    """Wait for a lock that is held for BUSY seconds."""
    with open(lock, "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        threading.Timer(BUSY, held.close).start()
        with locked(lock):
            pass
    lock.parent.rmdir()


Engine.forward_backward = step

if __name__ == "__main__":
    sys.exit(main(command))
