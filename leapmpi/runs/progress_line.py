"""How far long work has come: a bar on a terminal, whole lines in a log, with rate, share done and time left.

`step` is for work whose caller does not know where lines go: they go where `shown_by` has said, on one rank.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

IN_LOG = 30.0
"""Seconds between two lines in a log, where nothing else is asked for."""

_ON_TERMINAL = 0.5
_BAR = 20

Tell = Callable[[str], None]


class Progress:
    """How far a step has come. Lines go to `out`: on a terminal one that is rewritten, else one each `every` seconds.

    `tell`, where given, gets the whole lines of a log instead; 0 seconds between them means none. A step that reports
    no progress shows, half as often, how long it has been at work.
    """

    def __init__(
        self, name: str, out: TextIO | None = None, every: float | None = None, tell: Tell | None = None
    ) -> None:
        self._name = name
        self._out = out
        self._terminal = out is not None and rewrites(out)
        self._tell = tell or (lambda line: _write(out, f"{line}\n"))
        self._every = _ON_TERMINAL if self._terminal else IN_LOG if every is None else every
        self._shows = (out is not None or tell is not None) and self._every > 0
        self._total = 0
        self._unit = ""
        self._done = self._first = 0
        self._begun = self._begin = self._shown = time.monotonic()
        self._passes = 0
        self._width = 0

    def start(self, total: int | None, unit: str, done: int = 0) -> None:
        """Begin work of `total` units (None: not known), of which some may be `done` already."""
        self._total = total or 0
        self._unit = unit
        self._done = self._first = done
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
        if not self._shows:
            return
        now = time.monotonic()
        if now - self._shown >= self._every:
            self._shown = now
            self._show(self._line(now))

    def beat(self) -> None:
        """Show that the step is alive, if no other line has for a while; called regularly by another thread."""
        now = time.monotonic()
        if self._shows and now - self._shown >= 2 * self._every:
            self._shown = now
            self._show(f"{self._name}: at work for {duration(now - self._begun)}")

    def _line(self, now: float) -> str:
        rate = (self._done - self._first) / max(now - self._begin, 1e-9)
        pace = f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.2g}"
        if not self._total:
            return f"{self._name}: {self._done:,} {self._unit}, {pace} per second"
        share = min(1.0, self._done / self._total)
        bar = f"[{'#' * int(_BAR * share):.<{_BAR}}] " * self._terminal
        left = f", {duration((self._total - self._done) / rate)} left" if rate else ""
        return (
            f"{self._name}: {bar}{share:.0%}, {self._done:,} of {self._total:,} {self._unit}, {pace} per second{left}"
        )

    def _show(self, line: str) -> None:
        if not self._terminal:
            self._tell(line)
            return
        # Blanks, and no escape sequence, wipe the rest of a longer line: notebooks know no others.
        _write(self._out, f"\r{line:<{self._width}}")
        self._width = len(line)

    def close(self) -> None:
        """Clear the line on a terminal."""
        if self._width:
            _write(self._out, f"\r{'':<{self._width}}\r")
            self._width = 0


def _write(out: TextIO | None, text: str) -> None:
    # A terminal that has gone away is no reason to stop working.
    if out is not None:
        with suppress(OSError, ValueError):
            out.write(text)
            out.flush()


def rewrites(out: TextIO) -> bool:
    """Whether a line on `out` can be rewritten: on a terminal, and below the cell of a notebook."""
    with suppress(OSError, ValueError):
        return out.isatty() or type(out).__module__.startswith("ipykernel")
    return False


SILENT = Progress("")
"""Shows nothing."""


class _Display:
    """Where the steps of this process are shown; the innermost one that shows has the line of the terminal."""

    def __init__(self) -> None:
        self.make: Callable[[str], Progress] | None = None
        self.current: Progress | None = None


_display = _Display()


@contextmanager
def shown_by(tell: Tell, every: float, out: TextIO | None) -> Iterator[None]:
    """While the body runs, show steps: on `out` where it can be rewritten, else by whole lines to `tell`.

    every: seconds between two lines; 0 shows nothing.
    """
    terminal = out if out is not None and every > 0 and rewrites(out) else None
    before = _display.make
    _display.make = lambda name: Progress(name, terminal, every, tell)
    try:
        yield
    finally:
        _display.make = before


@contextmanager
def step(name: str, total: int | None, unit: str, done: int = 0) -> Iterator[Progress]:
    """A step of `total` units, shown where `shown_by` says; nowhere, and at no cost, outside of it."""
    if _display.make is None:
        yield SILENT
        return
    progress, outer = _display.make(name), _display.current
    progress.start(total, unit, done)
    _display.current = progress
    try:
        yield progress
    finally:
        progress.close()
        _display.current = outer


def clear() -> None:
    """Clear the line of the terminal, where there is one, before something else is written there."""
    if _display.current is not None:
        _display.current.close()


def duration(seconds: float) -> str:
    """`seconds` as a text such as 45 s, 3 min 20 s or 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole // 60 % 60:02} min"
