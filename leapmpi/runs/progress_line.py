"""Progress of long work: a bar on a terminal, whole lines in a log, with rate, share done and time left.

`step` reports progress of work that does not know its output; `shown_by` sets the output, on one rank.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TextIO

IN_LOG = 30.0
"""Default seconds between two lines in a log."""

_ON_TERMINAL = 0.5
"""Seconds between two looks of a bar."""

Emit = Callable[[str], None]


@dataclass(frozen=True)
class Terminal:
    """Terminal or notebook cell, whose last line can be rewritten through `out`."""

    out: TextIO
    columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns


def terminal_of(out: TextIO) -> Terminal | None:
    """Return the terminal or notebook cell behind `out`; None if it is a file or a pipe."""
    with suppress(OSError, ValueError):
        if out.isatty() or type(out).__module__.startswith("ipykernel"):
            return Terminal(out)
    return None


class Progress:
    """Progress of one step: a bar on `terminal`, else a line for `emit` every `every` seconds.

    `every` = 0 disables output. A step that reports no progress shows its elapsed time, half as often.
    """

    def __init__(
        self, name: str, terminal: Terminal | None = None, every: float | None = None, emit: Emit | None = None
    ) -> None:
        self._name, self._terminal, self._emit = name, terminal, emit
        self._every = IN_LOG if every is None else every
        if terminal and self._every > 0:
            self._every = _ON_TERMINAL
        self._shows = (terminal is not None or emit is not None) and self._every > 0
        self._bar: Any = None
        self._total = 0
        self._unit = ""
        self._done = self._first = 0
        self._begin = self._shown = time.monotonic()
        self._passes = 0

    def start(self, total: int | None, unit: str, done: int = 0) -> None:
        """Begin work of `total` units (None: unknown), `done` of them finished already."""
        self.close()
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
            self._show(now)

    def beat(self) -> None:
        """Show that the step is alive if nothing else has for a while. Called regularly by another thread."""
        now = time.monotonic()
        if not self._shows or now - self._shown < 2 * self._every:
            return
        self._shown = now
        if self._terminal:
            self._draw(self._terminal)
        elif self._emit:
            self._emit(f"{self._name}: running for {duration(now - self._begin)}")

    def _show(self, now: float) -> None:
        if self._terminal:
            self._draw(self._terminal)
        elif self._emit:
            self._emit(self._line(now))

    def _line(self, now: float) -> str:
        rate = (self._done - self._first) / max(now - self._begin, 1e-9)
        pace = f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.2g}"
        if not self._total:
            return f"{self._name}: {self._done:,} {self._unit}, {pace} per second"
        share = min(1.0, self._done / self._total)
        left = f", {duration((self._total - self._done) / rate)} left" if rate else ""
        return f"{self._name}: {share:.0%}, {self._done:,} of {self._total:,} {self._unit}, {pace} per second{left}"

    def _draw(self, terminal: Terminal) -> None:
        """Draw the bar as it is now. A closed terminal must not stop the work."""
        columns = terminal.columns() - 1  # a full line would wrap, and could not be rewritten
        with suppress(OSError, ValueError):
            if self._bar is None:
                form = None if self._unit else "{desc}: running for {elapsed}"
                unit, begun = f" {self._unit}", time.monotonic() - self._begin
                self._bar = _bar_type()(
                    desc=self._name, total=self._total or None, initial=self._first, unit=unit, bar_format=form,
                    file=terminal.out, ncols=columns, leave=False, position=0, delay=1e-9,
                )  # fmt: skip
                self._bar.start_t -= begun
            self._bar.ncols, self._bar.n = columns, self._done
            self._bar.refresh()

    def clear(self) -> None:
        """Clear the bar until it is drawn again."""
        with suppress(OSError, ValueError):
            if self._bar is not None:
                self._bar.clear()

    def close(self) -> None:
        """Remove the bar."""
        with suppress(OSError, ValueError):
            if self._bar is not None:
                self._bar.close()
        self._bar = None


@cache
def _bar_type() -> Any:
    """Return the bars of tqdm, without its thread, and without locks between processes."""
    from tqdm import tqdm

    bar_type: Any = type("Bar", (tqdm,), {"monitor_interval": 0})
    bar_type.set_lock(threading.RLock())
    return bar_type


def lines_to(out: TextIO) -> Emit:
    """Return a function that writes lines to `out`."""
    return lambda line: _write(out, f"{line}\n")


def _write(out: TextIO, text: str) -> None:
    # A closed terminal must not stop the work.
    with suppress(OSError, ValueError):
        out.write(text)
        out.flush()


def takes_colour(terminal: Terminal | None) -> bool:
    """Return whether lines on `terminal` may be coloured: not in a cell, or with NO_COLOR (https://no-color.org)."""
    if terminal is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return not type(terminal.out).__module__.startswith("ipykernel")


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
def shown_by(emit: Emit, every: float, terminal: Terminal | None) -> Iterator[None]:
    """Show steps while the body runs: by a bar on `terminal` if there is one, else by whole lines to `emit`.

    every: seconds between two lines; 0 disables output.
    """
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
    clear()
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
        _display.current.clear()


def duration(seconds: float) -> str:
    """Format `seconds`, such as 45 s, 3 min 20 s or 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole // 60 % 60:02} min"
