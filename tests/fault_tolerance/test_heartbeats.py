"""Heartbeats: what a rank writes, others read, also from a file that somebody damaged."""

import os
import re
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from leapmpi.errors import RunFolderError
from leapmpi.fault_tolerance.heartbeats import (
    ENDED,
    FAILED,
    GIVING_UP,
    PAGE,
    REPORTING,
    RUNNING,
    HeartbeatTable,
    create_heartbeats,
    is_alive,
    map_heartbeats,
    read_heartbeats,
    table_bytes,
)
from leapmpi.fault_tolerance.report import how_it_ended, wait_for_silence
from leapmpi.runs.file_names import HEARTBEATS_FILE
from leapmpi.runs.run_folder import record_failure
from leapmpi.system.phase_timers import PHASES, PhaseTimers


@pytest.fixture
def tables(tmp_path):
    """The tables of three ranks, all in one file."""
    token = create_heartbeats(tmp_path / HEARTBEATS_FILE, 3)
    return [
        HeartbeatTable(map_heartbeats(tmp_path / HEARTBEATS_FILE, token), rank, tmp_path / HEARTBEATS_FILE)
        for rank in range(3)
    ]


def test_others_read_what_a_rank_wrote(tables):
    tables[1].write_place("gather", 4, 2**40)
    tables[1].write_pulse(1.5, 10, 3, True)
    tables[2].state = GIVING_UP
    found = tables[0].read()
    assert sorted(found) == [0, 1, 2]
    heartbeat = found[1]
    assert (heartbeat.phase, heartbeat.epoch, heartbeat.iteration) == ("gather", 4, 2**40)
    assert heartbeat.where() == f"phase gather, epoch 5, iteration {2**40 + 1}"
    assert (heartbeat.processor_seconds, heartbeat.moves, heartbeat.waits, heartbeat.waiting) == (1.5, 10, 3, True)
    assert abs(heartbeat.since - time.time()) < 60
    assert (heartbeat.process, heartbeat.host, heartbeat.state) == (os.getpid(), os.uname().nodename, RUNNING)
    assert (found[0].phase, found[0].epoch, found[0].iteration) == ("start", None, None)
    assert tables[0].any_other_in(GIVING_UP)
    assert not tables[2].any_other_in(GIVING_UP)


def test_every_change_of_phase_is_written(tables):
    phases = PhaseTimers()
    phases.on_change = tables[0].write_place
    phases.epoch, phases.iteration = 1, 2
    for phase in PHASES:
        with phases(phase):
            assert tables[1].read()[0].where() == phases.where() == f"phase {phase}, epoch 2, iteration 3"
    assert tables[1].read()[0].phase == "start"


def test_each_slot_has_a_page_of_its_own(tables):
    tables[2].write_place("plan", 0, 0)
    before = bytes(tables[0].memory)
    tables[1].write_place("reduce", 7, 7)
    tables[1].write_pulse(1, 2, 3, True)
    tables[1].state = FAILED
    changed = np.flatnonzero(np.frombuffer(before, "u1") != np.frombuffer(bytes(tables[0].memory), "u1"))
    assert set(changed // PAGE) == {2}
    assert len(before) == table_bytes(3)


def test_a_file_of_another_start_is_not_written_to(tmp_path, tables):
    path = tmp_path / HEARTBEATS_FILE
    token = create_heartbeats(path, 3)
    assert map_heartbeats(path, "0" * 16, patience=0) is None
    assert map_heartbeats(tmp_path / "nowhere", token, patience=0) is None
    tables[1].write_place("reduce", 7, 7)
    assert read_heartbeats(path) == {}
    assert os.listdir(tmp_path) == [HEARTBEATS_FILE]


def test_damaged_files_are_refused(tmp_path, tables):
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


def test_the_next_start_learns_who_fell_silent_first(tmp_path, tables):
    for rank, phase in enumerate(("reduce", "gather", "reduce")):
        tables[rank].write_place(phase, 1, 2)
        tables[rank].write_pulse(0, 0, 0, False)
    found = how_it_ended(tmp_path)
    assert all(f"rank {rank} on" in found["why"] for rank in range(3))
    # Rank 1 gave no sign when the others still did.
    last = tables[1].read()[1].pulse
    for rank in (0, 2):
        while time.time() < last + 1.2:
            time.sleep(0.1)
        tables[rank].write_pulse(0, 0, 0, True)
    found = how_it_ended(tmp_path)
    assert "rank 1 on" in found["why"]
    assert "rank 0 on" not in found["why"]
    assert (found["rank"], found["phase"], found["epoch"], found["iteration"]) == (1, "gather", 1, 2)
    # What a survivor has said counts more.
    record_failure(tmp_path, "rank 2 is on fire", rank=2)
    found = how_it_ended(tmp_path)
    assert (found["status"], found["why"], found["rank"]) == ("failed", "rank 2 is on fire", 2)


def test_ranks_that_ended_in_order_leave_nothing_to_tell(tmp_path, tables):
    for table in tables:
        table.state = ENDED
    assert how_it_ended(tmp_path) is None
    assert how_it_ended(tmp_path / "nowhere") is None


def test_ranks_that_outlive_their_rank_0_are_waited_for(tmp_path):
    """A live start is not taken for a dead one, as long as one of its ranks can write to the folder."""
    code = (
        "import sys, time; from pathlib import Path; from leapmpi.fault_tolerance.heartbeats import *\n"
        f"path = Path({str(tmp_path / HEARTBEATS_FILE)!r}); token = create_heartbeats(path, 2)\n"
        "table = HeartbeatTable(map_heartbeats(path, token), 1); table.write_pulse(0, 0, 0, False)\n"
        "print('here', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"here\n"
        sentence = f"rank 1 of the start before still runs, on {os.uname().nodename} as process {process.pid}, though"
        with pytest.raises(RunFolderError, match=re.escape(sentence)):
            wait_for_silence(tmp_path, patience=0.0)
        # Dead, and not reaped yet.
        process.kill()
        wait_for_silence(tmp_path)
    assert "died without reporting an error: rank 1 on" in how_it_ended(tmp_path)["why"]


def test_of_other_hosts_the_heartbeat_is_watched(tables):
    tables[1].write_pulse(0, 0, 0, False)
    first = replace(tables[0].read()[1], host="elsewhere")
    later = replace(first, pulse=first.pulse + 1)
    assert is_alive(first, first, 0.0)
    assert not is_alive(first, first, 3.5)
    assert is_alive(later, first, 3.5)
    assert not is_alive(replace(later, state=ENDED), first, 3.5)
    assert not is_alive(replace(first, pulse=first.pulse - 3600), first, 0.0)


def test_of_ranks_that_fail_together_the_lowest_reports(tables):
    tables[1].state = tables[2].state = REPORTING
    assert not tables[1].any_lower_in(REPORTING)
    assert tables[2].any_lower_in(REPORTING)
    assert not tables[0].any_lower_in(REPORTING)
    assert how_it_ended(tables[0].path.parent)["rank"] == 0, "only the one that says nothing was lost"
