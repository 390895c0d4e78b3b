"""Stop requests, signals and the end of a Slurm job, without a job; a stopped job under a real mpirun."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest

from leapmpi import load_run
from leapmpi.cli.main import main
from leapmpi.errors import Interrupted
from leapmpi.fault_tolerance.stop_signals import (
    NOTHING,
    SAVE,
    SIGNALS,
    STOP,
    Signals,
    StopRequest,
    begin_vote,
    job_end,
    seconds_of,
)
from leapmpi.training.checkpointer import _stop_at
from tests.support.launch import mpirun


def test_the_request_that_matters_most_is_the_largest():
    requests = [
        StopRequest(), StopRequest(SAVE), StopRequest(STOP), StopRequest(STOP, signal.SIGTERM, 0),
        StopRequest(STOP, signal.SIGTERM, 2**31 - 1), StopRequest(STOP, 64, 5),
    ]  # fmt: skip
    packed = [each.packed() for each in requests]
    assert sorted(packed) == packed
    assert [StopRequest.unpacked(number) for number in packed] == requests
    assert max(packed) < 2**63
    assert requests[4].reason() == f"SIGTERM on rank {2**31 - 1}"
    assert StopRequest(STOP, signal.SIGINT, 3).reason() == "interrupted"
    assert requests[2].reason() == "the job's time is running out"
    assert StopRequest().action == NOTHING


def test_alone_a_rank_gets_its_request():
    class Alone:
        def start_all_reduce_maximum(self, value):
            return lambda: value

    for request in (StopRequest(), StopRequest(STOP, signal.SIGUSR2, 0)):
        assert begin_vote(Alone(), request)() == request


def test_signals_are_noted_only_inside_and_while_somebody_polls():
    before = [signal.getsignal(each) for each in SIGNALS]
    signals = Signals()
    with signals.handled():
        signals.polled = True
        os.kill(os.getpid(), signal.SIGUSR2)
        assert signals.number == signal.SIGUSR2
        os.kill(os.getpid(), signal.SIGTERM)  # the same event by another way
        assert signals.number == signal.SIGUSR2
    assert [signal.getsignal(each) for each in SIGNALS] == before
    for code, expected in ((None, 128 + signal.SIGINT), (75, 75)):
        signals = Signals()
        signals.exit_code = code
        with pytest.raises(Interrupted, match="SIGINT ended the job") as caught, signals.handled():
            os.kill(os.getpid(), signal.SIGINT)
        assert caught.value.exit_code == expected


def test_one_cause_may_send_signals_of_two_kinds(monkeypatch):
    monkeypatch.setattr("leapmpi.fault_tolerance.stop_signals._SAME_EVENT", 0.0)
    signals = Signals()
    with signals.handled():
        signals.polled = True
        # Slurm's SIGTERM to all, and what a batch script makes of its own.
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert signals.number == signal.SIGTERM
        with pytest.raises(Interrupted, match="a second signal, SIGTERM"):
            os.kill(os.getpid(), signal.SIGTERM)


def test_signals_are_heard_where_the_launcher_had_blocked_them():
    signals, before = Signals(), signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        with signals.handled():
            signals.polled = True
            os.kill(os.getpid(), signal.SIGTERM)
            assert signals.number == signal.SIGTERM
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_in_another_thread_signals_are_left_alone():
    seen = []

    def body():
        with Signals().handled():
            seen.append([signal.getsignal(each) for each in SIGNALS])

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [[signal.getsignal(each) for each in SIGNALS]]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("59", 59), ("1:00", 60), ("2:03:04", 7384), ("1-00:00:00", 86400), ("10-01:01", 864061),
        ("UNLIMITED", None), ("NOT_SET", None), ("INVALID", None), ("", None), ("1:2:3:4", None), ("-1", None),
    ],
)  # fmt: skip
def test_time_left_as_slurm_writes_it(text, seconds):
    assert seconds_of(text) == seconds


def test_the_end_of_the_job_comes_from_slurm(tmp_path):
    squeue = tmp_path / "squeue"
    squeue.write_text('#!/bin/sh\n[ "$3" = 17 ] && echo 2:00\n')
    squeue.chmod(squeue.stat().st_mode | stat.S_IXUSR)
    path = {"PATH": f"{tmp_path}:/bin:/usr/bin"}
    assert job_end({**path, "SLURM_JOB_END_TIME": "2000000000", "SLURM_JOB_ID": "17"}) == 2e9
    assert abs(job_end({**path, "SLURM_JOB_ID": "17"}) - time.time() - 120) < 30
    assert job_end({**path, "SLURM_JOB_ID": "18"}) is None
    assert job_end({"PATH": "/nowhere", "SLURM_JOB_ID": "17"}) is None
    assert job_end(path) is None


def test_a_short_job_is_not_stopped_before_it_has_worked():
    short, long = time.time() + 1000, time.time() + 10_000
    assert abs(_stop_at(short) - (short - 100)) < 1
    assert abs(_stop_at(long) - (long - 120)) < 1
    assert _stop_at(None) is None


def test_one_rank_of_four_is_signalled_and_mpirun_ends_resumable(small_data, tmp_path, capsys):
    settings = ["train", small_data, "--run", tmp_path / "run", "--epochs", 3, "--batch-size", 16, "--device", "cpu"]
    job = mpirun(4, [sys.executable, "-m", "tests.support.stopped_job", "TERM", 2, 1, 1, *settings])
    assert job.returncode == 75, job.stderr
    (line,) = (line for line in job.stderr.splitlines() if line.startswith("leapmpi: "))
    assert line.startswith("leapmpi: SIGTERM on rank 2: training stopped in epoch 2, after iteration 3 of 5")
    assert "Traceback" not in job.stderr
    assert load_run(tmp_path / "run").failure["status"] == "interrupted"
    assert main([str(each) for each in settings]) == 0
    assert "resumed in epoch 2, after iteration 3 of 5" in capsys.readouterr().out
    assert [epoch["epoch"] for epoch in load_run(tmp_path / "run").summary["epochs"]] == [1, 2, 3]


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_signal_during_the_start_says_a_sentence(rank, small_data, tmp_path):
    """While libraries are imported, before a session answers signals."""
    code = (
        "import os, signal, sys; from leapmpi.cli import main\n"
        "class Import:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'leapmpi.job.run_training': os.kill(os.getpid(), signal.SIGUSR2)\n"
        "sys.meta_path.insert(0, Import())\n"
        f"sys.argv[1:] = ['train', {str(small_data)!r}, '--run', {str(tmp_path / 'run')!r}]\nmain.main()"
    )
    environment = {**os.environ, "PMI_RANK": rank}
    job = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert job.returncode == 75
    sentence = "SIGUSR2 ended the job while nothing was computed; the same command starts it again"
    assert (job.stdout, job.stderr) == ("", f"leapmpi: {sentence}\n")
    assert not (tmp_path / "run").exists()
