"""What is said of lost ranks and of stalls: who, where, and what to do."""

import pytest

from leapmpi.fault_tolerance.heartbeats import RUNNING, Heartbeat
from leapmpi.fault_tolerance.report import describe_lost, describe_stall


def heartbeat(rank, waiting=False, waits=5, phase="compute"):
    return Heartbeat(rank, f"node{rank}", 100 + rank, RUNNING, phase, 1, 2, 0.0, 9, 0.0, 1.0, 7, waits, waiting)


def stall(heartbeats, silent=(), ranks=2):
    found = {each.rank: each for each in heartbeats}
    return describe_stall(found, silent, ranks, 120.04, 12.0, "rank 0/2 on node0")


@pytest.mark.parametrize(("for_memory", "said"), [(False, "killed from outside"), (True, "use a smaller batch")])
def test_lost_ranks_are_named(for_memory, said):
    text = describe_lost([heartbeat(1)], 4, for_memory)
    assert text.startswith("lost rank 1/4 on node1 in phase compute, epoch 2, iteration 3: ")
    assert said in text


def test_one_that_does_not_wait_or_gives_no_sign_is_waited_for():
    for waiting, silent in ((False, ()), (True, (1,))):
        text, blamed = stall([heartbeat(0, True), heartbeat(1, waiting)], silent)
        assert text.startswith(
            "no progress for 120.0 s (--comm-timeout 12): the job waits for rank 1/2 on node1, phase "
        )
        assert blamed.rank == 1


def test_where_no_rank_waits_none_is_said_to():
    text, blamed = stall([heartbeat(0), heartbeat(1)])
    assert (
        "(--comm-timeout 12), and no rank waits for another; as seen by rank 0/2 on node0: rank 0 on node0 in" in text
    )
    assert blamed is None


def test_where_all_wait_nobody_is_accused_though_one_is_behind():
    text, blamed = stall([heartbeat(0, True, waits=4, phase="reduce"), heartbeat(1, True)], ranks=3)
    assert "though every rank waits for others, as when a network link is down; as seen by rank 0/2 on node0: " in text
    assert "rank 0 on node0 in phase reduce, epoch 2, iteration 3, rank 1 on node1 in phase compute" in text
    assert text.endswith("; ranks that cannot be seen from here: 2")
    assert blamed.rank == 0
