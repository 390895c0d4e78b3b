"""A timeline of this rank, of its training and its work ahead: every stretch of every phase, in Chrome's trace format.

https://ui.perfetto.dev shows the files of all ranks side by side. Times are those of the host's clock, in microseconds
since 1970, so hosts agree as far as their clocks are. The format is the JSON array of "Trace Event Format"
(Google, 2016), one event a line; its closing bracket may be missing, as it is after a crash.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leapmpi.system import channels
from leapmpi.system.atomic_files import explain
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.system.regular_files import regular_only

NAMES = {channels.FOREGROUND: "training", channels.AHEAD: "ahead"}
"""Names of channels with a clock."""

_KEPT = 4096
"""Spans in memory before they are written."""


class Trace:
    """Writes the spans of `phases` from now on to a new file `path`.

    Raises ResourceError or DataError when it cannot be written.
    """

    def __init__(self, path: Path, phases: PhaseTimers, rank: int, name: str) -> None:
        self.path = path
        self.phases = phases
        self.rank = rank
        self._offset = time.time() - time.perf_counter()
        self._events: list[dict] = [_named("process_name", rank, 0, name)]
        self._events += [_named("thread_name", rank, number, known) for number, known in NAMES.items()]
        self._written = 0
        phases.span = self.add

    def add(self, number: int, phase: str, epoch: int | None, iteration: int | None, begin: float, end: float) -> None:
        """Add one span of channel `number`; times are of the clock time.perf_counter, epochs and iterations from 0."""
        start = round((begin + self._offset) * 1e6)
        place = {"epoch": epoch, "iteration": iteration}
        event = {"name": phase, "ph": "X", "ts": start, "dur": round((end - begin) * 1e6)}
        self._events.append(event | {"pid": self.rank, "tid": number, "args": place})
        if len(self._events) >= _KEPT and number == channels.FOREGROUND:
            self.write()

    def write(self, last: str = "") -> None:
        """Append what has not been written yet, and `last`. Called by the thread that trains."""
        events = self._events
        self._events = []
        try:
            mode = "a" if self._written else "w"
            with open(self.path, mode, encoding="utf-8", opener=regular_only) as file:
                # One JSON list, written in pieces: a comma precedes each event but the first.
                for number, event in enumerate(events, self._written):
                    file.write(("," if number else "[") + json.dumps(event) + "\n")
                file.write(last)
        except OSError as error:
            raise explain(error, self.path) from None
        self._written += len(events)

    def close(self) -> None:
        """Write what is left, and end the list. Raises ResourceError or DataError as `write` does."""
        self.phases.span = None
        self.write("]\n")


@contextmanager
def record_timeline(path: Path | None, phases: PhaseTimers, rank: int, name: str) -> Iterator[None]:
    """Write a timeline of this rank, called `name`, to the new file `path` (None: nowhere) while the body runs."""
    if path is None:
        yield
        return
    timeline = Trace(path, phases, rank, name)
    try:
        yield
    finally:
        timeline.close()


def _named(kind: str, rank: int, number: int, name: str) -> dict:
    return {"name": kind, "ph": "M", "pid": rank, "tid": number, "args": {"name": name}}
