"""Steps of a command: the progress of each (leapmpi/runs/progress_line.py), and the final table of them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from leapmpi.runs.progress_line import SILENT, Progress, duration, lines_to, terminal_of

__all__ = ["SILENT", "Progress", "Step", "Steps", "duration"]

_SAMPLE = 0.1
"""Seconds between two samples of the memory."""


@dataclass(frozen=True)
class Step:
    """Cost of a step: seconds, and the peak of resident bytes; `own` without pages of mapped files."""

    name: str
    seconds: float
    resident: int
    own: int


class Steps:
    """The steps of one command, timed and measured one after the other; unless `silent`, with lines on stderr."""

    def __init__(self, *, silent: bool = False) -> None:
        self._terminal = None if silent else terminal_of(sys.stderr)
        self._emit = None if silent else lines_to(sys.stderr)
        self.done: list[Step] = []

    @contextmanager
    def step(self, name: str) -> Iterator[Progress]:
        """Run the body as a step called `name`, and measure its peak of memory."""
        progress = Progress(name, self._terminal, emit=self._emit)
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
        """Return lines for the end of a command: seconds and peak memory by step, in MiB."""
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
    """Read bytes by name from /proc/self/status; zeros where there is none."""
    sizes = {"VmHWM": 0, "RssAnon": 0}
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in sizes:
                sizes[name] = int(rest.split()[0]) * 1024
    return sizes
