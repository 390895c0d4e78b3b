"""Seconds per phase on this rank, and the present phase, for messages.

Each channel (`leapmpi.system.channels`) has a clock, so the work done ahead of training is counted separately, with how
much of it training did not have to wait for. The clock of the channel ROWS never runs: the thread that moves rows is in
a phase of the channel AHEAD.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

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
"""Kinds of time."""

IDLE = ("start", "wait")
"""Phases in which a rank does nothing for its training: not yet begun, or waiting for work done ahead."""


class PhaseTimers:
    """Adds up seconds by phase and channel. A phase entered inside another interrupts the outer one's clock.

    `current`, `epoch` and `iteration` say where the calling thread's channel is. Others may listen: `span`, where set,
    is called with every stretch of time: channel, phase, epoch, iteration, and its begin and end on the clock
    time.perf_counter. `on_change`, where set, is called at every change of phase with the rank's phase, epoch and
    iteration: those of training, or those of the work ahead that training waits for.
    """

    def __init__(self) -> None:
        self.on_change: Callable[[str, int | None, int | None], None] | None = None
        self.span: Callable[[int, str, int | None, int | None, float, float], None] | None = None
        self._lock = threading.Lock()
        self._clocks = [_Clock() for _ in channels.CHANNELS]
        self._hidden = 0.0

    @property
    def current(self) -> str:
        """The phase of this thread's channel."""
        return self._mine.phase

    @property
    def epoch(self) -> int | None:
        """The epoch of this thread's channel; None outside of epochs."""
        return self._mine.epoch

    @epoch.setter
    def epoch(self, epoch: int | None) -> None:
        self._at(epoch, self.iteration)

    @property
    def iteration(self) -> int | None:
        """The iteration of this thread's channel; None outside of iterations."""
        return self._mine.iteration

    @iteration.setter
    def iteration(self, iteration: int | None) -> None:
        self._at(self.epoch, iteration)

    @property
    def since(self) -> float:
        """Start of the channel's present stretch of time, on the clock time.perf_counter: no earlier than `take`."""
        return self._mine.since

    def __call__(self, phase: str) -> AbstractContextManager[None]:
        """Count the body's time as `phase`, one of PHASES. On an exception the phase stays current, to be named."""
        return _SAME if self._mine.phase == phase else _Stretch(self._switch, phase)

    def take(self) -> dict[str, float]:
        """Return the seconds by phase of the calling thread's channel since the last take."""
        self._switch(self.current)
        return self._mine.take()

    def take_ahead(self) -> tuple[dict[str, float], float]:
        """Return the seconds by phase of the channel AHEAD since the last take, and those hidden behind training."""
        with self._lock:
            hidden, self._hidden = self._hidden, 0.0
            return self._clocks[channels.AHEAD].take(), hidden

    def adopt_ahead(self) -> None:
        """Take over the place of the channel AHEAD: an error of the work ahead is about to be raised here."""
        ahead = self._clocks[channels.AHEAD]
        mine = self._mine
        mine.phase, mine.epoch, mine.iteration = ahead.phase, ahead.epoch, ahead.iteration

    def where(self, channel: int | None = None) -> str:
        """Format 'phase compute, epoch 3, iteration 12' for messages; both count from 1, as in all output.

        It is the place of `channel`, or of the calling thread's.
        """
        clock = self._clocks[channels.current() if channel is None else channel]
        return place(clock.phase, clock.epoch, clock.iteration)

    @property
    def _mine(self) -> _Clock:
        return self._clocks[channels.current()]

    def _at(self, epoch: int | None, iteration: int | None) -> None:
        """Move to this place; the stretch of time up to now was at the one before."""
        clock = self._mine
        if (clock.epoch, clock.iteration) != (epoch, iteration):
            self._switch(clock.phase)
            clock.epoch, clock.iteration = epoch, iteration

    def _switch(self, phase: str) -> str:
        """Enter `phase`; returns the phase that was left."""
        channel = channels.current()
        clock = self._clocks[channel]
        training, ahead = self._clocks[channels.FOREGROUND], self._clocks[channels.AHEAD]
        with self._lock:
            now = time.perf_counter()
            begin, left = clock.since, clock.phase

            # While training was busy, it did not wait for the work ahead.
            busy = training.busy_until(now)
            if clock is not training and left in PHASES:
                self._hidden += busy - clock.training_busy
            clock.training_busy = busy

            # Where training waits for the work ahead, the rank is where that work is.
            clock.switch(phase, now)
            shown = ahead if training.phase == "wait" and ahead.phase in PHASES else training
            if listener := self.on_change:
                listener(shown.phase, shown.epoch, shown.iteration)
        if self.span and left in PHASES:
            self.span(channel, left, clock.epoch, clock.iteration, begin, now)
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


_SAME = nullcontext()
"""A stretch of time in the phase that it interrupts."""


def place(phase: str, epoch: int | None, iteration: int | None) -> str:
    """Format 'phase compute, epoch 3, iteration 12' for numbers that count from 0; omit those that are None."""
    text = f"phase {phase}"
    if epoch is not None:
        text += f", epoch {epoch + 1}"
    if iteration is not None:
        text += f", iteration {iteration + 1}"
    return text


class _Clock:
    """Clock of one channel: its place, and its seconds by phase."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.phase = "start"
        self.epoch: int | None = None
        self.iteration: int | None = None
        self.since = time.perf_counter()
        self.training_busy = 0.0
        """Value of `busy_until` of training's clock at the last switch of this clock."""
        self._busy = 0.0

    def busy_until(self, now: float) -> float:
        """Return the seconds spent up to `now` in phases other than those of IDLE."""
        return self._busy + (now - self.since if self.phase not in IDLE else 0.0)

    def switch(self, phase: str, now: float) -> None:
        """End the current phase at `now` and enter `phase`."""
        self._busy = self.busy_until(now)
        if self.phase in self.seconds:
            self.seconds[self.phase] += now - self.since
        self.phase, self.since = phase, now

    def take(self) -> dict[str, float]:
        """Return the seconds by phase since the last take."""
        taken = self.seconds
        self.seconds = dict.fromkeys(PHASES, 0.0)
        return taken


def median_seconds(action: Callable[[], object], times: int = 3, before: Callable[[], object] | None = None) -> float:
    """Return the median time of `action` once warm, over `times` times; run `before` before each, untimed."""
    action()
    seconds = []
    for _ in range(times):
        if before:
            before()
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
