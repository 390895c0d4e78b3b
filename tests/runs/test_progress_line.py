"""Steps are shown where the session says: by whole lines in a log, by one that is rewritten on a terminal."""

import io
import re
import time

import pytest

from leapmpi.runs import progress_line
from leapmpi.runs.progress_line import Progress, clear, shown_by, step, terminal_of


class Terminal(io.StringIO):
    """A terminal that remembers."""

    def isatty(self):
        return True


class Cell(io.StringIO):
    """What a notebook gives as standard output."""


Cell.__module__ = "ipykernel.iostream"


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests turn: clock[0] is the time."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def work(clock, done=0):
    """100 units at one a second."""
    with step("epoch 1/2", 100, "iterations", done) as shown:
        for number in range(done, 100):
            clock[0] += 1
            shown.reach(number + 1)


def test_a_log_gets_whole_lines(clock):
    lines, out = [], io.StringIO()
    with shown_by(lines.append, 30.0, terminal_of(out)):
        work(clock)
    assert lines == [
        "epoch 1/2: 30%, 30 of 100 iterations, 1 per second, 1 min 10 s left",
        "epoch 1/2: 60%, 60 of 100 iterations, 1 per second, 40 s left",
        "epoch 1/2: 90%, 90 of 100 iterations, 1 per second, 10 s left",
    ]
    assert out.getvalue() == ""


def test_the_rate_of_a_resumed_epoch_is_that_of_this_start(clock):
    lines = []
    with shown_by(lines.append, 30.0, None):
        work(clock, done=60)
    assert lines == ["epoch 1/2: 90%, 90 of 100 iterations, 1 per second, 10 s left"]


@pytest.mark.parametrize("kind", [Terminal, Cell])
def test_a_terminal_and_a_notebook_have_one_bar(kind, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(progress_line, "_ON_TERMINAL", 1e-9)
    lines, out = [], kind()
    with shown_by(lines.append, 30.0, terminal_of(out)), step("epoch 1/2", 100, "iterations") as outer:
        outer.reach(50)
        with step("evaluation of val", 10, "batches") as shown:
            shown.advance(5)
            clear()
            assert re.search(r"\r +\r$", out.getvalue())
        outer.reach(100)
    text = out.getvalue()
    assert "\n" not in text
    assert "\x1b" not in text
    assert re.search(r"\repoch 1/2:  50%\|[█#]+.? +\| 50/100 \[00:00<00:00, +[\d,.]+ iterations/s\]", text)
    assert re.search(r"\revaluation of val:  50%\|", text)
    assert re.search(r"\r +\r$", text)
    assert lines == []


@pytest.mark.parametrize("columns", [40, 80, 132])
def test_a_bar_is_narrower_than_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(progress_line, "_ON_TERMINAL", 1e-9)
    with shown_by(lambda line: None, 30.0, terminal_of(out := Terminal())), step("epoch 1/2", 100, "iterations") as it:
        for number in range(100):
            it.reach(number + 1)
    widths = set(map(len, out.getvalue().split("\r")))
    assert max(widths) < columns
    assert max(widths) > columns - 3


def test_work_of_unknown_length_and_silent_work_are_shown(monkeypatch):
    monkeypatch.setattr(progress_line, "_ON_TERMINAL", 1e-9)
    for beats in (False, True):
        progress = Progress("sort", terminal_of(out := Terminal()))
        if beats:
            progress.beat()
            assert "\rsort: running for 00:00" in out.getvalue()
        progress.start(None, "edges")
        progress.reach(1234)
        assert "\rsort: 1234 edges [00:00, " in out.getvalue()
        progress.close()


def test_a_closed_terminal_does_not_stop_the_work(monkeypatch):
    monkeypatch.setattr(progress_line, "_ON_TERMINAL", 1e-9)
    for close_early in (True, False):
        terminal = terminal_of(out := Terminal())
        if close_early:
            out.close()
        with shown_by(lambda line: None, 30.0, terminal), step("epoch 1/2", 100, "iterations") as shown:
            shown.reach(50)
            out.close()
            shown.reach(100)


def test_what_is_no_terminal_has_no_bar():
    assert terminal_of(io.StringIO()) is None


@pytest.mark.parametrize("every", [0.0, 30.0])
def test_nothing_is_shown_at_0_and_outside(clock, every):
    lines, out = [], Terminal()
    with shown_by(lines.append, 0.0, terminal_of(out)):
        work(clock)
    work(clock)
    assert (lines, out.getvalue()) == ([], "")
