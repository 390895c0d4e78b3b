"""What is said of lost and late ranks: who, where, and what to do."""

import pytest

from leapmpi.fault_tolerance.diagnosis import about_the_dead, about_the_late
from leapmpi.fault_tolerance.heartbeats import RUNNING, Heartbeat


def stamp(rank, waiting=False, waits=5, phase="compute"):
    return Heartbeat(rank, f"node{rank}", 100 + rank, RUNNING, phase, 1, 2, 0.0, 9, 0.0, 1.0, 7, waits, waiting)


def late(stamps, silent=(), ranks=2):
    found = {each.rank: each for each in stamps}
    return about_the_late(found, silent, ranks, 12.0, "rank 0/2 on node0")


@pytest.mark.parametrize(("for_memory", "said"), [(False, "killed from outside"), (True, "use a smaller batch")])
def test_the_dead(for_memory, said):
    text = about_the_dead([stamp(1)], 4, for_memory)
    assert text.startswith("lost rank 1/4 on node1 in phase compute, epoch 2, iteration 3: ")
    assert said in text


def test_one_that_does_not_wait_or_gives_no_sign_is_waited_for():
    for stamps, silent in (([stamp(0, True), stamp(1)], ()), ([stamp(0, True), stamp(1, True)], (1,))):
        text, blamed = late(stamps, silent)
        assert "for 12 s (--comm-timeout): the job waits for rank 1/2 on node1, phase compute, epoch 2" in text
        assert blamed.rank == 1


def test_where_all_wait_nobody_is_accused_though_one_is_behind():
    text, blamed = late([stamp(0, True, waits=4, phase="reduce"), stamp(1, True)], ranks=3)
    assert "though every rank waits for others, as when a network link is down; as seen by rank 0/2 on node0: " in text
    assert "rank 0 on node0 in phase reduce, epoch 2, iteration 3, rank 1 on node1 in phase compute" in text
    assert text.endswith("; ranks that cannot be seen from here: 2")
    assert blamed.rank == 0
