"""Progress of a command: a line with rate and remaining time in long steps, and the table of steps at the end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

# Seconds between two lines, and between two samples of the memory.
_ON_TERMINAL = 0.5
_IN_LOG = 30.0
_SAMPLE = 0.1


class Progress:
    """How far a step has come. Lines go to `out`: on a terminal one that is rewritten, else one each 30 seconds.

    A step that reports no progress shows, half as often, how long it has been at work.
    """

    def __init__(self, name: str, out: TextIO | None = None) -> None:
        self._name = name
        self._out = out
        self._terminal = out is not None and out.isatty()
        self._every = _ON_TERMINAL if self._terminal else _IN_LOG
        self._total = 0
        self._unit = ""
        self._done = 0
        self._begun = self._begin = self._shown = time.monotonic()
        self._passes = 0
        self._visible = False

    def start(self, total: int | None, unit: str) -> None:
        """Begin work of `total` units (None: not known); the count starts at 0 again."""
        self._total = total or 0
        self._unit = unit
        self._done = 0
        self._begin = time.monotonic()

    def start_pass(self, edges: int) -> None:
        """Begin one more pass over so many edges."""
        self._passes += 1
        self.start(edges, f"edges of pass {self._passes}")

    def advance(self, count: int) -> None:
        """`count` more units are done."""
        self.reach(self._done + count)

    def reach(self, done: int) -> None:
        """Altogether `done` units are done."""
        self._done = done
        now = time.monotonic()
        if self._out is not None and now - self._shown >= self._every:
            self._shown = now
            self._show(self._out, self._line(now))

    def beat(self) -> None:
        """Show that the step is alive, if no other line has for a while; called regularly by another thread."""
        now = time.monotonic()
        if self._out is not None and now - self._shown >= 2 * self._every:
            self._shown = now
            self._show(self._out, f"{self._name}: at work for {duration(now - self._begun)}")

    def _line(self, now: float) -> str:
        rate = self._done / max(now - self._begin, 1e-9)
        share = f" of {self._total:,}" if self._total else ""
        left = f", {duration((self._total - self._done) / rate)} left" if self._total and rate else ""
        return f"{self._name}: {self._done:,}{share} {self._unit}, {rate:,.0f} per second{left}"

    def _show(self, out: TextIO, line: str) -> None:
        with suppress(OSError, ValueError):
            out.write(f"\r\x1b[K{line}" if self._terminal else f"{line}\n")
            out.flush()
            self._visible = self._terminal

    def close(self) -> None:
        """Clear the line on a terminal."""
        if self._out is not None and self._visible:
            with suppress(OSError, ValueError):
                self._out.write("\r\x1b[K")
                self._out.flush()


SILENT = Progress("")
"""Shows nothing."""


def duration(seconds: float) -> str:
    """`seconds` as a text such as 45 s, 3 min 20 s or 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole // 60 % 60:02} min"


@dataclass(frozen=True)
class Step:
    """What a step took: seconds, and the peak of resident bytes; `own` without pages of mapped files."""

    name: str
    seconds: float
    resident: int
    own: int


class Steps:
    """The steps of one command, timed and measured one after the other; unless `silent`, with lines on stderr."""

    def __init__(self, *, silent: bool = False) -> None:
        self._out = None if silent else sys.stderr
        self.done: list[Step] = []

    @contextmanager
    def step(self, name: str) -> Iterator[Progress]:
        """Time the body as a step called `name`, and measure its peak of memory."""
        progress = Progress(name, self._out)
        with suppress(OSError):
            # The system counts the peak of resident memory from now on.
            Path("/proc/self/clear_refs").write_text("5")
        begin = time.monotonic()
        own, end = [_status()["RssAnon"]], threading.Event()

        def sample() -> None:
            # Linux keeps no peak of the process's own memory.
            while not end.wait(_SAMPLE):
                own[0] = max(own[0], _status()["RssAnon"])
                progress.beat()

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield progress
        finally:
            own[0] = max(own[0], _status()["RssAnon"])
            end.set()
            thread.join()
            progress.close()
        self.done.append(Step(name, time.monotonic() - begin, _status()["VmHWM"], own[0]))

    def table(self) -> list[str]:
        """Lines for the end of a command: seconds and peak memory by step, in MiB."""
        lines = [f"  {'step':<20}{'seconds':>10}{'memory MiB':>12}{'with maps':>12}"]
        every = [*self.done]
        if len(every) > 1:
            total = sum(step.seconds for step in every)
            every.append(Step("all", total, max(s.resident for s in every), max(s.own for s in every)))
        for step in every:
            lines.append(
                f"  {step.name:<20}{step.seconds:>10,.1f}{step.own / 2**20:>12,.0f}{step.resident / 2**20:>12,.0f}"
            )
        return lines


def _status() -> dict[str, int]:
    """Bytes by name from /proc/self/status; zeros where there is none."""
    sizes = {"VmHWM": 0, "RssAnon": 0}
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in sizes:
                sizes[name] = int(rest.split()[0]) * 1024
    return sizes
