"""Stamps: what a rank writes, others read, also from a file that somebody damaged."""

import os
import time

import numpy as np
import pytest

from leapmpi.fault_tolerance.heartbeats import (
    ENDED,
    FAILED,
    GIVING_UP,
    PAGE,
    RUNNING,
    HeartbeatBoard,
    create_stamps,
    map_stamps,
    read_heartbeats,
    size_of,
)
from leapmpi.fault_tolerance.post_mortem import how_it_ended
from leapmpi.runs.run_folder import HEARTBEATS_FILE, record_failure
from leapmpi.system.phase_timers import PHASES, PhaseTimers


@pytest.fixture
def boards(tmp_path):
    """The boards of three ranks in one file."""
    mark = create_stamps(tmp_path / HEARTBEATS_FILE, 3)
    return [
        HeartbeatBoard(map_stamps(tmp_path / HEARTBEATS_FILE, mark), rank, tmp_path / HEARTBEATS_FILE)
        for rank in range(3)
    ]


def test_others_read_what_a_rank_stamped(boards):
    boards[1].stamp("gather", 4, 2**40)
    boards[1].pulse(1.5, 10, 3, True)
    boards[2].state = GIVING_UP
    found = boards[0].look()
    assert sorted(found) == [0, 1, 2]
    stamp = found[1]
    assert (stamp.phase, stamp.epoch, stamp.iteration) == ("gather", 4, 2**40)
    assert stamp.where() == f"phase gather, epoch 5, iteration {2**40 + 1}"
    assert (stamp.processor_seconds, stamp.moves, stamp.waits, stamp.waiting) == (1.5, 10, 3, True)
    assert abs(stamp.since - time.time()) < 60
    assert (stamp.process, stamp.host, stamp.state) == (os.getpid(), os.uname().nodename, RUNNING)
    assert (found[0].phase, found[0].epoch, found[0].iteration) == ("start", None, None)
    assert boards[0].anyone(GIVING_UP)
    assert not boards[2].anyone(GIVING_UP)


def test_every_change_of_phase_is_stamped(boards):
    phases = PhaseTimers()
    phases.on_change = boards[0].stamp
    phases.epoch, phases.iteration = 1, 2
    for phase in PHASES:
        with phases(phase):
            assert boards[1].look()[0].where() == phases.where() == f"phase {phase}, epoch 2, iteration 3"
    assert boards[1].look()[0].phase == "start"


def test_each_slot_has_a_page_of_its_own(boards):
    boards[2].stamp("plan", 0, 0)
    before = bytes(boards[0].memory)
    boards[1].stamp("reduce", 7, 7)
    boards[1].pulse(1, 2, 3, True)
    boards[1].state = FAILED
    changed = np.flatnonzero(np.frombuffer(before, "u1") != np.frombuffer(bytes(boards[0].memory), "u1"))
    assert set(changed // PAGE) == {2}
    assert len(before) == size_of(3)


def test_a_file_of_another_start_is_not_written_to(tmp_path, boards):
    path = tmp_path / HEARTBEATS_FILE
    mark = create_stamps(path, 3)
    assert map_stamps(path, "0" * 16, patience=0) is None
    assert map_stamps(tmp_path / "nowhere", mark, patience=0) is None
    boards[1].stamp("reduce", 7, 7)
    assert read_heartbeats(path) == {}
    assert os.listdir(tmp_path) == [HEARTBEATS_FILE]


def test_damaged_files_are_refused(tmp_path, boards):
    path = tmp_path / HEARTBEATS_FILE
    whole = path.read_bytes()
    other = tmp_path / "other"
    rng = np.random.default_rng(0)
    for size in (0, 1, PAGE - 1, PAGE, len(whole) - 1):
        other.write_bytes(whole[:size])
        with pytest.raises(ValueError):  # noqa: PT011  (what json and this reader raise alike)
            read_heartbeats(other)
    for _ in range(300):
        damaged = np.frombuffer(whole, "u1").copy()
        at = rng.integers(0, 300, 4) + PAGE * rng.integers(0, 4)
        damaged[at] = rng.integers(0, 256, 4)
        other.write_bytes(damaged.tobytes())
        try:
            assert len(read_heartbeats(other)) <= 3
        except (ValueError, OSError):
            continue
    other.unlink()
    other.symlink_to(path)
    with pytest.raises(OSError):  # noqa: PT011
        read_heartbeats(other)


def test_the_next_start_learns_who_fell_silent_first(tmp_path, boards):
    for rank, phase in enumerate(("reduce", "gather", "reduce")):
        boards[rank].stamp(phase, 1, 2)
        boards[rank].pulse(0, 0, 0, False)
    told = how_it_ended(tmp_path)
    assert all(f"rank {rank} on" in told["why"] for rank in range(3))
    # Rank 1 gave no sign when the others still did.
    stamped = boards[1].look()[1].pulse
    for rank in (0, 2):
        while time.time() < stamped + 1.2:
            time.sleep(0.1)
        boards[rank].pulse(0, 0, 0, True)
    told = how_it_ended(tmp_path)
    assert "rank 1 on" in told["why"]
    assert "rank 0 on" not in told["why"]
    assert (told["rank"], told["phase"], told["epoch"], told["iteration"]) == (1, "gather", 1, 2)
    # What a survivor has said counts more.
    record_failure(tmp_path, "rank 2 is on fire", rank=2)
    told = how_it_ended(tmp_path)
    assert (told["status"], told["why"], told["rank"]) == ("failed", "rank 2 is on fire", 2)


def test_ranks_that_ended_in_order_leave_nothing_to_tell(tmp_path, boards):
    for board in boards:
        board.state = ENDED
    assert how_it_ended(tmp_path) is None
    assert how_it_ended(tmp_path / "nowhere") is None
