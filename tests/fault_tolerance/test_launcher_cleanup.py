"""A launcher that hangs after its ranks have ended is asked to end, then killed; nothing else is touched."""

import os
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from leapmpi.fault_tolerance import launcher_cleanup

DEAF = "trap '' INT; echo ready; while :; do sleep 0.05; done"
COUNTING = "n=0; trap 'n=$((n + 1)); [ $n = 3 ] && exit 9' INT; echo ready; while :; do sleep 0.05; done"


def started(folder, name, script):
    """A running shell script called `name`."""
    program = folder / name
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o755)
    process = subprocess.Popen([program], stdout=subprocess.PIPE, text=True, cwd=folder)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(("script", "code"), [(DEAF, -signal.SIGKILL), (COUNTING, 9)])
def test_it_is_asked_three_times_and_then_killed(script, code, tmp_path):
    process = started(tmp_path, "mpirun", script)
    launcher_cleanup.wait_and_end(os.pidfd_open(process.pid), process.pid, by_itself=0.1, between_signals=0.3)
    assert process.wait(timeout=10) == code


def test_what_it_leaves_is_ended_too(tmp_path):
    process = started(
        tmp_path, "mpirun", "trap 'exit 9' INT; (trap '' TERM; exec sleep 60) & echo $! > child; echo ready; wait"
    )
    child = os.pidfd_open(int((tmp_path / "child").read_text()))
    launcher_cleanup.wait_and_end(os.pidfd_open(process.pid), process.pid, by_itself=0.1, between_signals=1)
    assert process.wait(timeout=10) == 9
    assert select.select([child], [], [], 10)[0], "the child still runs"


def test_one_that_ends_by_itself_is_left_alone(tmp_path):
    process = started(tmp_path, "mpirun", "echo ready; sleep 0.2; exit 7")
    begin = time.monotonic()
    launcher_cleanup.wait_and_end(os.pidfd_open(process.pid), process.pid, by_itself=30)
    assert process.wait(timeout=10) == 7
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize(("name", "reached"), [("prterun", True), ("bash", False), ("prted", False)])
def test_a_line_reaches_the_screen_past_a_launcher_that_prints_no_more(name, reached, tmp_path, capsys):
    program = tmp_path / name
    program.write_text("#!/bin/bash\necho ready; read\n")
    program.chmod(0o755)
    pipe = subprocess.PIPE
    process = subprocess.Popen([program], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout.readline() == "ready\n"
    launcher_cleanup.report_line("leapmpi: interrupted", process.pid)
    _, errors = process.communicate("\n", timeout=10)
    assert errors == "leapmpi: interrupted\n" * reached
    assert capsys.readouterr().err == "leapmpi: interrupted\n" * (not reached)


def test_a_line_does_not_go_into_the_launcher_s_file(tmp_path, capsys):
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/bash\necho ready; read\n")
    program.chmod(0o755)
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout.readline() == "ready\n"
    launcher_cleanup.report_line("leapmpi: interrupted", process.pid)
    process.communicate("\n", timeout=10)
    assert (tmp_path / "log").read_text() == ""
    assert capsys.readouterr().err == "leapmpi: interrupted\n"


def test_only_launchers_are_ended(tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **keywords: begun.append(keywords["pass_fds"]))
    launcher_cleanup.end_launcher(os.getpid())
    assert begun == []
    monkeypatch.setattr(launcher_cleanup, "_NAMES", (Path("/proc/self/comm").read_text().strip(),))
    launcher_cleanup.end_launcher(os.getpid())
    ((handle,),) = begun
    os.close(handle)


def test_the_process_that_is_left_behind_ends_a_launcher_that_hangs(tmp_path):
    process = started(tmp_path, "mpirun", COUNTING)
    launcher_cleanup.end_launcher(process.pid, by_itself=0.1)
    assert process.wait(timeout=60) == 9


@pytest.mark.parametrize(
    ("interrupted", "job", "left_to_slurm"), [(True, "7", True), (False, "7", False), (True, "", False)]
)
def test_the_launcher_of_an_interrupted_job_is_left_to_slurm(interrupted, job, left_to_slurm, monkeypatch):
    begun = []
    monkeypatch.setattr(launcher_cleanup, "end_launcher", lambda process, by_itself: begun.append((process, by_itself)))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    if job:
        monkeypatch.setenv("SLURM_JOB_ID", job)
    launcher_cleanup.end_launcher_after_failure(3, interrupted)
    assert begun == ([] if left_to_slurm else [(3, 60.0)])
