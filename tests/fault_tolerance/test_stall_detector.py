"""Stalls: who moves, who is waited for, and who is late; with a clock that the test moves."""

from types import SimpleNamespace

import pytest

from leapmpi.fault_tolerance.stall_detector import PATIENCE, StallDetector, late_ranks

LIMIT = 100.0


def observed(until, moves=lambda t: 0, work=lambda t: 0.0, waiting=False, step=5.0):
    """What was seen of rank 0 from 0 to `until`."""
    found, now = StallDetector(LIMIT), 0.0
    while now <= until:
        found.observe(now, 0, moves(now), work(now), waiting)
        now += step
    return found


def test_a_rank_that_is_still_does_not_move_after_the_limit():
    found = observed(200)
    assert found.is_moving(0, LIMIT - 1)
    assert not found.is_moving(0, LIMIT + 1)
    assert found.quiet_seconds(0, 150) == 150


def test_moves_count_in_a_wait_and_outside():
    for waiting in (True, False):
        assert observed(1000, moves=lambda t: int(t // 90), waiting=waiting).is_moving(0, 1000)


def test_computing_counts_outside_a_wait_only():
    assert observed(500, work=lambda t: 0.5 * t).is_moving(0, 500)
    # The tests of a waiting rank use the processor too.
    assert not observed(500, work=lambda t: 0.5 * t, waiting=True).is_moving(0, 500)


def test_the_little_that_a_sleeping_process_uses_is_no_work():
    assert not observed(500, work=lambda t: 0.005 * t).is_moving(0, 500)


def test_a_rank_that_computes_for_very_long_without_a_move_runs_in_circles():
    found = observed(PATIENCE * LIMIT + 50, work=lambda t: 1.0 * t)
    assert found.is_moving(0, PATIENCE * LIMIT - 1)
    assert not found.is_moving(0, PATIENCE * LIMIT + 1)
    assert found.still_seconds(0, PATIENCE * LIMIT + 1) == PATIENCE * LIMIT + 1


def test_after_a_suspension_everything_begins_anew():
    found = observed(50)
    found.reset()
    found.observe(5000, 0, 0, 0.0, True)
    assert found.is_moving(0, 5000 + LIMIT - 1)


@pytest.mark.parametrize(
    ("waiting", "waits", "silent", "expected"),
    [
        ([True, False, True], [9, 8, 9], [], [1]),  # one does not wait
        ([True, True, True], [9, 8, 9], [], [1]),  # one is a collective behind
        ([True, True, True], [9, 9, 9], [], []),  # a link is down: nobody is to blame
        ([True, True, True], [9, 9, 9], [2], [2]),  # one gives no sign
        ([False, False, True], [8, 8, 9], [], [0, 1]),
        ([False, False], [8, 8], [], []),
        ([False], [8], [], [0]),
    ],
)
def test_who_is_late(waiting, waits, silent, expected):
    heartbeats = [SimpleNamespace(rank=rank, waiting=w, waits=n) for rank, (w, n) in enumerate(zip(waiting, waits))]  # noqa: B905
    assert [each.rank for each in late_ranks(heartbeats, silent)] == expected
