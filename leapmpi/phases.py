"""Where the time goes: seconds per phase on this rank, and the phase it is in, for messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
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

    `current`, `epoch` and `iteration` say where this rank stands.
    """

    def __init__(self) -> None:
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
        text = f"phase {self.current}"
        if self.epoch is not None:
            text += f", epoch {self.epoch + 1}"
        if self.iteration is not None:
            text += f", iteration {self.iteration + 1}"
        return text

    def _switch(self, phase: str) -> None:
        now = time.perf_counter()
        if self.current in self.seconds:
            self.seconds[self.current] += now - self._since
        self.current, self._since = phase, now
