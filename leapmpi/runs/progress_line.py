"""Progress of long work: a bar on a terminal, whole lines in a log, with rate, share done and time left.

`step` reports progress of work that does not know its output; `shown_by` sets the output, on one rank.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

IN_LOG = 30.0
"""Default seconds between two lines in a log."""

_ON_TERMINAL = 0.5
_BAR = 20

Emit = Callable[[str], None]


class Progress:
    """Progress of one step, shown on `out`: rewritten in place on a terminal, else one line per `every` seconds.

    `emit`, if given, receives the lines of a log instead; `every` = 0 disables output. A step that reports no progress
    shows its elapsed time, half as often.
    """

    def __init__(
        self, name: str, out: TextIO | None = None, every: float | None = None, emit: Emit | None = None
    ) -> None:
        self._name = name
        self._out = out
        self._terminal = out is not None and rewrites(out)
        self._emit = emit or (lambda line: _write(out, f"{line}\n"))
        self._every = _ON_TERMINAL if self._terminal else IN_LOG if every is None else every
        self._shows = (out is not None or emit is not None) and self._every > 0
        self._total = 0
        self._unit = ""
        self._done = self._first = 0
        self._begun = self._begin = self._shown = time.monotonic()
        self._passes = 0
        self._width = 0

    def start(self, total: int | None, unit: str, done: int = 0) -> None:
        """Begin work of `total` units (None: unknown), `done` of them finished already."""
        self._total = total or 0
        self._unit = unit
        self._done = self._first = done
        self._begin = time.monotonic()

    def start_pass(self, edges: int) -> None:
        """Begin one more pass over `edges` edges."""
        self._passes += 1
        self.start(edges, f"edges of pass {self._passes}")

    def advance(self, count: int) -> None:
        """Record `count` more finished units."""
        self.reach(self._done + count)

    def reach(self, done: int) -> None:
        """Record a total of `done` finished units."""
        self._done = done
        if not self._shows:
            return
        now = time.monotonic()
        if now - self._shown >= self._every:
            self._shown = now
            self._show(self._line(now))

    def beat(self) -> None:
        """Show that the step is alive if no other line has for a while. Called regularly by another thread."""
        now = time.monotonic()
        if self._shows and now - self._shown >= 2 * self._every:
            self._shown = now
            self._show(f"{self._name}: running for {duration(now - self._begun)}")

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
            self._emit(line)
            return
        # A line that wraps cannot be rewritten.
        line = line[: shutil.get_terminal_size().columns - 1]
        # Overwrite a longer line with blanks: notebooks do not know escape sequences.
        _write(self._out, f"\r{line:<{self._width}}")
        self._width = len(line)

    def close(self) -> None:
        """Clear the line on a terminal."""
        if self._width:
            _write(self._out, f"\r{'':<{self._width}}\r")
            self._width = 0


def _write(out: TextIO | None, text: str) -> None:
    # A closed terminal must not stop the work.
    if out is not None:
        with suppress(OSError, ValueError):
            out.write(text)
            out.flush()


def rewrites(out: TextIO) -> bool:
    """Return whether a line on `out` can be rewritten: on a terminal, or in a notebook cell."""
    with suppress(OSError, ValueError):
        return out.isatty() or type(out).__module__.startswith("ipykernel")
    return False


def takes_colour(out: TextIO) -> bool:
    """Return whether lines on `out` may be coloured: on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    with suppress(OSError, ValueError, AttributeError):
        return out.isatty()
    return False


@contextmanager
def coloured(out: TextIO, code: int) -> Iterator[None]:
    """Write what the body writes to `out`, a terminal, in the colour `code`."""
    # The streams of a command escape control characters of messages.
    terminal = getattr(out, "unescaped", out)
    _write(terminal, f"\x1b[{code}m")
    try:
        yield
    finally:
        _write(terminal, "\x1b[0m")


SILENT = Progress("")
"""Progress without output."""


class _Display:
    """Output of the steps of this process. The innermost visible step owns the terminal line."""

    def __init__(self) -> None:
        self.make: Callable[[str], Progress] | None = None
        self.current: Progress | None = None


_display = _Display()


@contextmanager
def shown_by(emit: Emit, every: float, out: TextIO | None) -> Iterator[None]:
    """Show steps while the body runs: on `out` if it can be rewritten, else as whole lines to `emit`.

    every: seconds between two lines; 0 disables output.
    """
    # Only a terminal shows a bar; a log gets whole lines.
    terminal = out if out is not None and every > 0 and rewrites(out) else None
    before = _display.make
    _display.make = lambda name: Progress(name, terminal, every, emit)
    try:
        yield
    finally:
        _display.make = before


@contextmanager
def step(name: str, total: int | None, unit: str, done: int = 0) -> Iterator[Progress]:
    """Run the body as a step of `total` units, shown as set by `shown_by`; outside of it, silently and at no cost."""
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
    """Clear the terminal line, if any, before other output."""
    if _display.current is not None:
        _display.current.close()


def duration(seconds: float) -> str:
    """Format `seconds`, such as 45 s, 3 min 20 s or 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole // 60 % 60:02} min"
