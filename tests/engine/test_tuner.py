"""The tuner on invented times: it tries what the model predicts, keeps what was measured to be faster, and ends."""

import itertools
import json

import pytest

from leapmpi.engine.tuner import GAIN, WARM, WINDOW, Tuner

pytestmark = pytest.mark.compiles


def drive(tuner, seconds, iterations=200):
    """Choices made while an iteration of T steps takes seconds[T] plus some noise."""
    noise = itertools.cycle([1.0, 1.02, 0.98, 1.6, 1.01])
    choices = []
    for iteration in range(iterations):
        if choice := tuner.choose():
            choices.append((iteration, choice))
        tuner.add(tuner.current, seconds[tuner.current] * next(noise))
    return choices


def test_it_stays_at_the_fewest_steps_when_nothing_promises_a_gain():
    choices = drive(Tuner(1, {1: 1.0, 2: 1.2, 4: 0.95}), {1: 3.0})
    ((iteration, choice),) = choices
    assert iteration == WARM + WINDOW
    assert choice.time_steps == 1
    assert choice.evidence["settled"]
    assert choice.evidence["measured"]["1"] == pytest.approx(3.0, rel=0.05)
    # Predictions are scaled to what was measured.
    assert choice.evidence["predicted"]["2"] == pytest.approx(1.2 * choice.evidence["measured"]["1"])


def test_it_adopts_what_the_model_promises_and_the_clock_confirms():
    tuner = Tuner(1, {1: 1.0, 2: 0.7, 4: 0.5})
    choices = drive(tuner, {1: 1.0, 2: 0.8, 4: 0.6})
    assert [choice.time_steps for _, choice in choices] == [4, 4]
    assert tuner.decided
    assert tuner.best == 4


def test_it_goes_back_when_the_clock_does_not_confirm():
    tuner = Tuner(1, {1: 1.0, 2: 0.5})
    choices = drive(tuner, {1: 1.0, 2: 0.97})
    assert [choice.time_steps for _, choice in choices] == [2, 1]
    assert (tuner.best, tuner.current, tuner.decided) == (1, 1, True)
    assert len(drive(tuner, {1: 9.0})) == 0


def test_every_candidate_is_tried_once_at_most():
    tuner = Tuner(2, {2: 1.0, 4: 0.5, 8: 0.4, 16: 0.3})
    choices = drive(tuner, {2: 1.0, 4: 1.1, 8: 1.1, 16: 1.1})
    assert [choice.time_steps for _, choice in choices] == [16, 8, 4, 2]
    assert choices[-1][0] == 4 * (WARM + WINDOW)


def test_iterations_planned_before_a_change_do_not_count():
    tuner = Tuner(1, {1: 1.0, 2: 1.0 - 2 * GAIN})
    drive(tuner, {1: 1.0, 2: 1.0}, WARM + WINDOW + 1)
    assert tuner.current == 2
    for _ in range(20):
        tuner.add(1, 0.1)
    assert tuner.choose() is None


def test_one_candidate_leaves_nothing_to_tune():
    assert Tuner(1, {1: 1.0}).decided


def test_a_restored_tuner_goes_on():
    whole, cut = (Tuner(1, {1: 1.0, 2: 0.7, 4: 0.5}) for _ in range(2))
    drive(cut, {1: 1.0, 4: 0.6}, 13)
    drive(whole, {1: 1.0, 4: 0.6}, 13)
    cut = Tuner.restored(json.loads(json.dumps(cut.state())))
    assert vars(cut) == vars(whole)
