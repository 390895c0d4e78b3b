"""Work that is done where its thread waits: piece by piece, with its own channel, errors and end."""

import pytest

from leapmpi.comm.flow_control import UnderWay
from leapmpi.comm.interleaving import InterleavedWork, take_turns
from leapmpi.system import channels


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


def test_an_error_is_raised_when_the_work_is_asked_for():
    def body():
        raise OSError("the disk is on fire")

    work = InterleavedWork(body)
    UnderWay(Messages("step", 3, [])).wait()
    assert work.ended
    with pytest.raises(OSError, match="on fire"):
        work.finish(lambda seconds: None)


def test_what_ends_the_process_is_raised_at_once():
    def body():
        raise KeyboardInterrupt

    InterleavedWork(body)
    with pytest.raises(KeyboardInterrupt):
        UnderWay(Messages("step", 3, [])).wait()
    assert channels.current() == channels.FOREGROUND


def test_work_that_is_abandoned_never_goes_on():
    log = []
    work = InterleavedWork(lambda: UnderWay(Messages("ahead", 99, log)).wait())
    UnderWay(Messages("step", 3, [])).wait()
    tested = len(log)
    work.abandon()
    UnderWay(Messages("step", 3, [])).wait()
    assert 0 < tested == len(log)
    assert not work.ended
