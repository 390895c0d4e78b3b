"""Where the time goes: seconds per phase on this rank, and the phase it is in, for messages.

Each lane (`leapmpi.system.channels`) has a clock of its own: what is done ahead of training is told apart, with how
much of it training did not have to wait for. That of the lane ROWS never runs: the thread that moves them is in a phase
of AHEAD.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from leapmpi.system import channels

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


IDLE = ("start", "wait")
"""What a rank is in when it does nothing for its training: not yet begun, or waiting for others or for work ahead."""


class PhaseTimers:
    """Adds up seconds by phase and lane. A phase entered inside another interrupts the outer one's clock.

    `current`, `epoch` and `iteration` say where the calling thread's lane stands; `span`, where set, is told of every
    stretch of time: lane, phase, epoch, iteration, and its begin and end on the clock time.perf_counter. `stamp` is
    told at every change of phase where the rank stands: where training does, or what it is waiting for.
    """

    def __init__(self) -> None:
        self.stamp: Callable[[str, int | None, int | None], None] = _nobody
        self.span: Callable[[int, str, int | None, int | None, float, float], None] | None = None
        self._lock = threading.Lock()
        self._clocks = [_Clock() for _ in channels.LANES]
        self._hidden = 0.0

    @property
    def current(self) -> str:
        """The phase the lane is in."""
        return self._mine.phase

    @property
    def epoch(self) -> int | None:
        """The epoch the lane is in, from 0."""
        return self._mine.epoch

    @epoch.setter
    def epoch(self, epoch: int | None) -> None:
        self._mine.epoch = epoch

    @property
    def iteration(self) -> int | None:
        """The iteration the lane is in, from 0."""
        return self._mine.iteration

    @iteration.setter
    def iteration(self, iteration: int | None) -> None:
        self._mine.iteration = iteration

    @property
    def since(self) -> float:
        """When the lane's running stretch of time began, on the clock time.perf_counter: after `take`, when it took."""
        return self._mine.since

    def __call__(self, phase: str) -> AbstractContextManager[None]:
        """Count the body's time as `phase`, one of PHASES. On an exception the phase stays current, to be named."""
        return _Stretch(self._switch, phase)

    def take(self) -> dict[str, float]:
        """Seconds by phase of the calling thread's lane since the last take."""
        self._switch(self.current)
        return self._mine.take()

    def take_ahead(self) -> tuple[dict[str, float], float]:
        """Seconds by phase of the lane AHEAD since the last take, and how many of them training did not wait for."""
        with self._lock:
            hidden, self._hidden = self._hidden, 0.0
            return self._clocks[channels.AHEAD].take(), hidden

    def stand_ahead(self) -> None:
        """Stand where the lane AHEAD stands: what went wrong there is about to be told from here."""
        ahead, mine = self._clocks[channels.AHEAD], self._mine
        mine.phase, mine.epoch, mine.iteration = ahead.phase, ahead.epoch, ahead.iteration

    def where(self) -> str:
        """'phase compute, epoch 3, iteration 12' for messages; both are counted from 1, as in all that people read."""
        return place(self.current, self.epoch, self.iteration)

    @property
    def _mine(self) -> _Clock:
        return self._clocks[channels.current()]

    def _switch(self, phase: str) -> str:
        """Enter `phase`; returns the one that was left."""
        mine = channels.current()
        clock, training, ahead = self._clocks[mine], self._clocks[channels.FOREGROUND], self._clocks[channels.AHEAD]
        with self._lock:
            now = time.perf_counter()
            begin, left = clock.since, clock.phase
            busy = training.busy_until(now)
            if clock is not training and left in PHASES:
                self._hidden += busy - clock.training_busy
            clock.training_busy = busy
            clock.switch(phase, now)
            shown = ahead if training.phase == "wait" and ahead.phase in PHASES else training
            self.stamp(shown.phase, shown.epoch, shown.iteration)
        if self.span and left in PHASES:
            self.span(mine, left, clock.epoch, clock.iteration, begin, now)
        return left


class _Stretch:
    """A stretch of time in one phase. A class, since entering a generator takes several times as long."""

    __slots__ = ("_outer", "_phase", "_switch")

    def __init__(self, switch: Callable[[str], str], phase: str) -> None:
        self._switch, self._phase = switch, phase

    def __enter__(self) -> None:
        self._outer = self._switch(self._phase)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._switch(self._outer)


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


class _Clock:
    """Where one lane stands, and its seconds by phase."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.phase = "start"
        self.epoch: int | None = None
        self.iteration: int | None = None
        self.since = time.perf_counter()
        self.training_busy = 0.0
        """What `busy_until` of the training lane's clock was at the last switch of this one."""
        self._busy = 0.0

    def busy_until(self, now: float) -> float:
        """Seconds spent in phases other than those of IDLE up to `now`."""
        return self._busy + (now - self.since if self.phase not in IDLE else 0.0)

    def switch(self, phase: str, now: float) -> None:
        """End the current phase at `now` and enter `phase`."""
        self._busy = self.busy_until(now)
        if self.phase in self.seconds:
            self.seconds[self.phase] += now - self.since
        self.phase, self.since = phase, now

    def take(self) -> dict[str, float]:
        """Seconds by phase since the last take."""
        taken, self.seconds = self.seconds, dict.fromkeys(PHASES, 0.0)
        return taken
