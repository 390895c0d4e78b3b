"""Waits: eager at first, then asleep, in proportion to the wait."""

from leapmpi.comm.flow_control import UnderWay
from leapmpi.comm.polling import Backoff, waits


def naps(count):
    """The naps of a wait in which nothing happens for `count` tests."""
    backoff = Backoff()
    found = []
    for _ in range(count):
        backoff.note(False)
        found.append(backoff.nap())
    return found


def test_naps_grow_after_eager_tests_with_the_wait():
    found = naps(1000)
    assert found[:5] == [0.0] * 5
    assert found == sorted(found)
    assert 0 < found[5] < found[20] < found[-1] <= 1e-3
    assert all(nap <= max(found[5], sum(found[:number]) / 8) for number, nap in enumerate(found))


def test_news_make_tests_eager_again():
    backoff = Backoff()
    for _ in range(50):
        backoff.note(False)
        backoff.nap()
    backoff.note(True)
    assert backoff.nap() == 0.0


class Steps:
    """Work that ends with its third step; something happens in the first and the last."""

    def __init__(self):
        self.done = 0

    @property
    def finished(self):
        return self.done == 3

    def advance(self):
        self.done += 1
        return self.done != 2


def test_a_wait_ends_with_its_work_and_is_counted():
    begun, moves, work = waits.begun, waits.moves, Steps()
    UnderWay(work).wait()
    assert work.finished
    assert waits.begun == begun + 1
    # Its beginning, two arrivals, its end.
    assert waits.moves == moves + 4
    assert not waits.waiting
