"""What long steps tell: lines with rate and remaining time, and the table of seconds and memory."""

import io
import subprocess
import sys
import time

import pytest

from data_prep import progress
from data_prep.progress import Progress, Steps, duration
from leapmpi.runs import progress_line
from leapmpi.runs.progress_line import lines_to
from tests.support.launch import PROJECT


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests turn: clock[0] is the time."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def told(out, clock, seconds):
    """What a step of 1000 edges prints that does 100 in each of `seconds`."""
    progress = Progress("sort", emit=lines_to(out))
    progress.start(1000, "edges")
    for _ in range(seconds):
        clock[0] += 1
        progress.advance(100)
    progress.close()
    return out.getvalue()


def test_a_log_gets_a_line_every_half_minute(clock):
    progress = Progress("sort", emit=(lines := []).append)
    progress.start(None, "edges")
    for second in range(65):
        clock[0] = 100.0 + second
        progress.reach(10 * second)
    assert lines == ["sort: 300 edges, 10 per second", "sort: 600 edges, 10 per second"]


def test_short_steps_say_nothing(clock):
    assert told(io.StringIO(), clock, 20) == ""


def test_passes_are_counted(clock):
    progress = Progress("cut", emit=(lines := []).append)
    for _ in range(3):
        progress.start_pass(1000)
        clock[0] += 31
        progress.reach(310)
    assert lines == [f"cut: 31%, 310 of 1,000 edges of pass {n}, 10 per second, 1 min 09 s left" for n in (1, 2, 3)]


def test_a_step_that_does_not_tell_how_far_it_is_shows_that_it_is_alive(clock):
    progress = Progress("cut", emit=(lines := []).append)
    for _ in range(130):
        clock[0] += 1
        progress.beat()
    assert lines == ["cut: running for 1 min 00 s", "cut: running for 2 min 00 s"]


def test_a_step_that_tells_is_not_interrupted(clock):
    progress = Progress("cut", emit=(lines := []).append)
    progress.start(1000, "edges")
    for second in range(100):
        clock[0] += 1
        progress.reach(second)
        progress.beat()
    assert not any("running" in line for line in lines)


def test_a_silent_body_is_watched_by_a_thread(monkeypatch, capsys):
    monkeypatch.setattr(progress_line, "IN_LOG", 0.1)
    with Steps().step("cut"):
        time.sleep(0.6)
    assert "cut: running for 0 s" in capsys.readouterr().err


def test_silence_and_closed_outputs_do_no_harm(clock):
    progress = Progress("sort")
    progress.start(10, "edges")
    clock[0] += 100
    progress.reach(5)
    closed = io.StringIO()
    progress = Progress("sort", emit=lines_to(closed))
    closed.close()
    clock[0] += 100
    progress.reach(5)


def test_durations():
    assert [duration(s) for s in (0.4, 59, 200, 7500)] == ["0 s", "59 s", "3 min 20 s", "2 h 05 min"]


TWO_STEPS = """
import numpy as np
from data_prep.progress import Steps
measured = Steps(silent=True)
with measured.step("much"):
    large = np.ones(30_000_000)
    del large
with measured.step("little"):
    pass
print(*(step.resident for step in measured.done), *(line.split()[0] for line in measured.table()))
"""


def test_memory_is_that_of_the_step():
    """A peak belongs to the step that had it, and not to the next. A process of its own has no old memory to use."""
    done = subprocess.run([sys.executable, "-c", TWO_STEPS], capture_output=True, text=True, check=True, cwd=PROJECT)
    much, little, *table = done.stdout.split()
    assert int(much) - int(little) > 150 * 2**20
    assert table == ["step", "much", "little", "all"]
