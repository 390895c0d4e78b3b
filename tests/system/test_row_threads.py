"""Rows that several threads share: every row once, by any number of threads, and errors that are raised."""

import threading
import time

import numpy as np
import pytest

from leapmpi.system.worker_threads import attend, leave, set_threads, share_rows, threads


@pytest.fixture
def allowed():
    before = threads()
    yield set_threads
    set_threads(before)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("rows", [0, 1, 2, 63, 64, 65, 1000])
def test_every_row_is_computed_once(rows, count, allowed):
    allowed(count)
    out = np.zeros(rows, int)

    def kernel(first, end, array, by):
        array[first:end] += by

    share_rows(kernel, rows, out, 3)
    assert (out == 3).all()


def test_few_rows_stay_on_the_calling_thread_and_many_do_not(allowed):
    allowed(2)
    seen = []

    def kernel(first, end):
        seen.append((first, end, threading.get_ident()))

    share_rows(kernel, 10)
    assert seen == [(0, 10, threading.get_ident())]
    seen.clear()
    share_rows(kernel, 10, least=2)
    assert sorted(seen)[0] == (0, 5, threading.get_ident())
    assert sorted(seen)[1][:2] == (5, 10)


def test_an_error_of_another_thread_is_raised_when_all_have_ended(allowed):
    allowed(2)

    def kernel(first, end):
        if first:
            raise ValueError("the second half")

    with pytest.raises(ValueError, match="the second half"):
        share_rows(kernel, 100)


def test_all_ranges_end_before_an_error_of_one_is_raised(allowed):
    allowed(3)
    ended = []

    def kernel(first, end):
        if first == 100:
            raise ValueError("the second third")
        time.sleep(0.2 * (first == 200))
        ended.append(first)

    with pytest.raises(ValueError, match="the second third"):
        share_rows(kernel, 300)
    assert sorted(ended) == [0, 200]


class Messages:
    """Counts how often it was taken further, and leaves after `last` times."""

    def __init__(self, last=None, calls_of=None):
        self.last, self._calls = last, [] if calls_of is None else calls_of

    @property
    def calls(self):
        return len(self._calls)

    def advance(self):
        self._calls.append(True)
        if self.calls == self.last:
            leave(self.advance)


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_attended_to_is_called_between_pieces_that_make_up_all_rows(count, allowed):
    allowed(count)
    pieces, messages = [], Messages()

    def kernel(first, end):
        pieces.append((first, end))

    attend(messages.advance)
    try:
        share_rows(kernel, 1000, least=64)
    finally:
        leave(messages.advance)
    assert sorted(row for first, end in pieces for row in range(first, end)) == list(range(1000))
    assert messages.calls == len(pieces) - (count - 1) > 1


def test_what_leaves_while_it_is_attended_to_is_called_no_more():
    messages = Messages(last=1)
    attend(messages.advance)
    share_rows(lambda first, end: None, 1000)
    assert messages.calls == 1


def test_what_an_error_cut_short_is_called_no_more():
    calls = []
    messages = Messages(calls_of=calls)
    attend(messages.advance)
    del messages
    share_rows(lambda first, end: None, 1000)
    assert not calls
