"""Where the time goes: seconds per phase on this rank, and the phase it is in, for messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PHASES = (
    "load",
    "plan",
    "sample",
    "gather",
    "compute",
    "exchange",
    "migrate",
    "reduce",
    "evaluate",
    "checkpoint",
    "wait",
)


class Phases:
    """Adds up seconds by phase. A phase entered inside another interrupts the outer one's clock.

    `current`, `epoch` and `iteration` say where this rank stands; `stamp` is told of them at every change of phase.
    """

    def __init__(self) -> None:
        self.stamp: Callable[[str, int | None, int | None], None] = _nobody
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.current = "start"
        self.epoch: int | None = None
        self.iteration: int | None = None
        self._since = time.perf_counter()

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Count the body's time as `phase`, one of PHASES. On an exception the phase stays current, to be named."""
        outer = self.current
        self._switch(phase)
        yield
        self._switch(outer)

    def take(self) -> dict[str, float]:
        """Seconds by phase since the last take."""
        self._switch(self.current)
        taken, self.seconds = self.seconds, dict.fromkeys(PHASES, 0.0)
        return taken

    def where(self) -> str:
        """'phase compute, epoch 3, iteration 12' for messages; both are counted from 1, as in all that people read."""
        return place(self.current, self.epoch, self.iteration)

    def _switch(self, phase: str) -> None:
        now = time.perf_counter()
        if self.current in self.seconds:
            self.seconds[self.current] += now - self._since
        self.current, self._since = phase, now
        self.stamp(phase, self.epoch, self.iteration)


def place(phase: str, epoch: int | None, iteration: int | None) -> str:
    """'phase compute, epoch 3, iteration 12' for numbers that count from 0; without those that are None."""
    text = f"phase {phase}"
    if epoch is not None:
        text += f", epoch {epoch + 1}"
    if iteration is not None:
        text += f", iteration {iteration + 1}"
    return text


def _nobody(phase: str, epoch: int | None, iteration: int | None) -> None:
    """Hears of a change of phase where no one keeps stamps."""
