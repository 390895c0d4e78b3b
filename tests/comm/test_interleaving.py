"""Work that is done where its thread waits: piece by piece, with its own channel, errors and end."""

from itertools import pairwise

import pytest
import torch

from leapmpi.comm.flow_control import UnderWay
from leapmpi.comm.interleaving import InterleavedWork, take_turns
from leapmpi.comm.polling import waits
from leapmpi.errors import Interrupted
from leapmpi.system import channels
from leapmpi.system.worker_threads import in_pieces


class Messages:
    """Messages that have arrived after so many tests, and note who tested them in `log`."""

    def __init__(self, name, tests, log):
        self.name, self.tests, self.log = name, tests, log

    @property
    def finished(self):
        return self.tests <= 0

    def advance(self):
        self.tests -= 1
        self.log.append((self.name, channels.current()))
        return self.finished


def test_the_body_goes_on_where_others_wait_and_others_where_it_waits():
    log = []

    def body():
        log.append("begun")
        UnderWay(Messages("ahead", 3, log)).wait()
        log.append("ended")

    work = InterleavedWork(body)
    assert not log
    UnderWay(Messages("step", 6, log)).wait()
    assert work.ended
    assert log.index("begun") > log.index(("step", channels.FOREGROUND))
    assert log.index("ended") < len(log) - 1, "the step went on after the work had ended"
    tests = {each for each in log if isinstance(each, tuple)}
    assert tests == {("step", channels.FOREGROUND), ("ahead", channels.AHEAD)}
    assert channels.current() == channels.FOREGROUND
    assert not take_turns()


def test_pieces_of_work_ahead_make_way_for_a_step_whose_messages_have_arrived():
    log = []

    def body():
        in_pieces(lambda first, end: log.append((first, end)), 0, 1000, 1)
        log.append("ended")

    work = InterleavedWork(body)
    UnderWay(Messages("step", 4, log)).wait()
    assert not work.ended, "the step went on before the work had ended"
    assert ("step", channels.AHEAD) in log, "pieces attended to the messages of the step"
    done = [each for each in log if each[0] != "step"]
    work.finish()
    pieces = [each for each in log if each != "ended" and each[0] != "step"]
    assert pieces[: len(done)] == done
    assert pieces[0][0] == 0
    assert pieces[-1][1] == 1000
    assert all(before[1] == after[0] for before, after in pairwise(pieces))


def test_messages_of_work_ahead_do_not_interrupt_the_pieces_of_a_step():
    log = []

    def body():
        UnderWay(Messages("ahead", 4, log)).wait()
        log.append("ended")

    work = InterleavedWork(body)
    UnderWay(Messages("step", 2, log)).wait()
    in_pieces(lambda first, end: log.append((first, end)), 0, 1000, 1)
    assert "ended" not in log
    work.finish()
    assert log[-1] == "ended"


def test_an_error_is_raised_when_the_work_is_asked_for():
    def body():
        raise OSError("the disk is on fire")

    work = InterleavedWork(body)
    UnderWay(Messages("step", 3, [])).wait()
    assert work.ended
    with pytest.raises(OSError, match="on fire"):
        work.finish()


@pytest.mark.parametrize("signal", [KeyboardInterrupt, lambda: Interrupted("a second SIGTERM")])
def test_what_a_signal_raises_is_raised_at_once(signal):
    def body():
        raise signal()

    InterleavedWork(body)
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        UnderWay(Messages("step", 3, [])).wait()
    assert channels.current() == channels.FOREGROUND


def test_pieces_are_done_in_their_context_wherever_the_wait_is():
    found = []

    def body():
        found.append(torch.is_grad_enabled())
        UnderWay(Messages("ahead", 3, [])).wait()
        found.append(torch.is_grad_enabled())

    work = InterleavedWork(body, torch.enable_grad)
    with torch.no_grad():
        UnderWay(Messages("step", 6, [])).wait()
        assert not torch.is_grad_enabled()
    assert work.ended
    assert found == [True, True]


def test_a_rank_that_works_ahead_within_a_wait_is_not_waiting():
    found = []

    def body():
        found.append(waits.waiting)
        UnderWay(Messages("ahead", 2, [])).wait()

    InterleavedWork(body)
    UnderWay(Messages("step", 5, [])).wait()
    assert found == [False]
    assert not waits.waiting


def test_work_that_is_abandoned_never_goes_on():
    log = []
    work = InterleavedWork(lambda: UnderWay(Messages("ahead", 99, log)).wait())
    UnderWay(Messages("step", 3, [])).wait()
    tested = len(log)
    work.abandon()
    UnderWay(Messages("step", 3, [])).wait()
    assert 0 < tested == len(log)
    assert not work.ended
