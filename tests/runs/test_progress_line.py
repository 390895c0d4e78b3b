"""Steps are shown where the session says: by whole lines in a log, by one that is rewritten on a terminal."""

import io
import time

import pytest

from leapmpi.runs.progress_line import clear, shown_by, step


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
    with shown_by(lines.append, 30.0, out):
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
def test_a_terminal_and_a_notebook_have_one_line(clock, kind, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    lines, out = [], kind()
    with shown_by(lines.append, 30.0, out):
        work(clock)
        with step("evaluation of val", 10, "batches") as shown:
            clock[0] += 2
            shown.advance(5)
            clear()
            assert out.getvalue().endswith(" \r")
    text = out.getvalue()
    assert "\n" not in text
    assert "\x1b" not in text
    assert "[##########..........] 50%, 50 of 100 iterations, 1 per second, 50 s left" in text
    assert lines == []


def test_a_line_is_no_longer_than_the_terminal_is_wide(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    with shown_by(lambda line: None, 30.0, out := Terminal()):
        work(clock)
    assert max(map(len, out.getvalue().split("\r"))) < 40


@pytest.mark.parametrize("every", [0.0, 30.0])
def test_nothing_is_shown_at_0_and_outside(clock, every):
    lines, out = [], Terminal()
    with shown_by(lines.append, 0.0, out):
        work(clock)
    work(clock)
    assert (lines, out.getvalue()) == ([], "")
