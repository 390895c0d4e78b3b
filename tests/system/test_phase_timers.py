"""Phases: every second belongs to one phase, and a failure is named by the phase it happened in."""

import pytest

from leapmpi.system import phase_timers as module
from leapmpi.system.phase_timers import PHASES, PhaseTimers


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless it is moved: clock(seconds)."""
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])

    def move(seconds):
        now[0] += seconds

    return move


def spent(phases):
    return {phase: seconds for phase, seconds in phases.take().items() if seconds}


def test_an_inner_phase_interrupts_the_outer_one(clock):
    phases = PhaseTimers()
    clock(7)  # before the first phase: nobody's
    with phases("exchange"):
        clock(1)
        with phases("gather"):
            clock(2)
        clock(4)
        with phases("gather"):
            clock(8)
    clock(16)
    with phases("compute"):
        clock(32)
    assert spent(phases) == {"exchange": 5, "gather": 10, "compute": 32}
    assert spent(phases) == {}


def test_taking_in_the_middle_of_a_phase_splits_it(clock):
    phases = PhaseTimers()
    with phases("load"):
        clock(1)
        assert spent(phases) == {"load": 1}
        clock(2)
    assert spent(phases) == {"load": 2}
    assert set(phases.take()) == set(PHASES)


def test_a_failure_is_named_by_where_it_happened():
    phases = PhaseTimers()
    assert phases.where() == "phase start"
    phases.epoch, phases.iteration = 0, 11
    with pytest.raises(RuntimeError), phases("compute"), phases("gather"):
        raise RuntimeError
    assert phases.where() == "phase gather, epoch 1, iteration 12"


def test_a_phase_within_itself_belongs_to_the_iteration_in_which_it_was_spent(clock):
    phases, found = PhaseTimers(), []
    phases.span = lambda channel, phase, epoch, iteration, begin, end: found.append(
        (phase, epoch, iteration, end - begin)
    )
    phases.epoch = 2
    with phases("compute"):
        for iteration in range(2):
            phases.iteration = iteration
            with phases("reduce"):
                clock(1)
            with phases("compute"):
                clock(5)
    phases.iteration = None
    seconds = [span for span in found if span[3]]
    assert seconds == [("reduce", 2, 0, 1), ("compute", 2, 0, 5), ("reduce", 2, 1, 1), ("compute", 2, 1, 5)]
