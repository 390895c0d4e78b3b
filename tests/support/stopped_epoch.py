"""A full batch whose last rank is told to stop in a chosen epoch: every rank's training must end by Interrupted."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from leapmpi.comm.world import World
from leapmpi.engine.engine import Engine
from leapmpi.errors import Interrupted


@contextmanager
def stopped_in(epoch: int, world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The block trains full batches; its last rank gets SIGUSR2 in `epoch`, counted from 0, and all ranks stop."""
    genuine, last = Engine.forward_backward, world.size - 1

    def interrupted(engine, minibatch):
        if minibatch.key.epoch == epoch and engine.ctx.rank == last:
            os.kill(os.getpid(), signal.SIGUSR2)
        return genuine(engine, minibatch)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "forward_backward", interrupted)
        with pytest.raises(Interrupted, match=f"SIGUSR2 on rank {last}"):
            yield
