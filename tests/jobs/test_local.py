"""jobs/mpirun/local: messages, exit codes, signals, and that no files stay behind."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.launch import PROJECT, child_environment, end_session, mpirun, session_members

LOCAL = PROJECT / "jobs/mpirun/local"

# Every rank allocates shared memory with the others, is ready after a barrier, and then waits.
WAITING_RANK = """
import pathlib, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
window = MPI.Win.Allocate_shared(8000, 8, comm=comm)
comm.barrier()
pathlib.Path(sys.argv[1], f"ready-{comm.rank}").touch()
time.sleep(60)
"""


def local(*arguments, **env):
    environment = child_environment(env)
    return subprocess.run([LOCAL, *arguments], env=environment, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize("ranks", ["0", "-1", "four", "2.5", ""])
def test_an_invalid_number_of_ranks_is_refused_in_one_sentence(ranks):
    job = local(ranks, "true")
    assert job.returncode == 2
    assert job.stdout == ""
    assert job.stderr == f"local: error: the number of ranks must be a positive whole number, not '{ranks}'\n"


def test_without_a_command_it_shows_its_usage():
    assert "usage: jobs/mpirun/local N COMMAND" in local("2").stderr


def test_an_unknown_command_is_named(tmp_path):
    job = mpirun(2, ["no-such-command"])
    assert job.returncode == 2
    assert "no command 'no-such-command'" in job.stderr


def test_without_mpirun_it_says_how_to_get_one(tmp_path):
    for tool in ["bash", "dirname", "env"]:
        (tmp_path / tool).symlink_to(shutil.which(tool))
    job = local("2", "env", LEAPMPI_ENV=str(tmp_path), PATH=str(tmp_path))
    assert job.returncode == 2
    assert "no mpirun found" in job.stderr
    assert "jobs/environment" in job.stderr


def test_more_ranks_than_cores_run_unbound_and_every_line_arrives():
    code = "from mpi4py import MPI; import os; print(MPI.COMM_WORLD.allreduce(1), len(os.sched_getaffinity(0)))"
    ranks = len(os.sched_getaffinity(0)) + 1
    job = mpirun(ranks, [sys.executable, "-c", code])
    assert job.returncode == 0, job.stderr
    assert job.stdout.splitlines() == [f"{ranks} {ranks - 1}"] * ranks


def test_the_exit_code_is_the_job_s():
    assert mpirun(2, ["sh", "-c", "exit 7"]).returncode == 7


def test_a_home_folder_is_not_required_of_the_environment():
    job = subprocess.run(["env", "-u", "HOME", LOCAL, "1", "true"], capture_output=True, text=True, timeout=30)
    assert (job.returncode, job.stderr) == (0, "")


def test_settings_of_the_user_win():
    job = mpirun(1, ["sh", "-c", "echo $OMPI_MCA_mpi_yield_when_idle"], env={"OMPI_MCA_mpi_yield_when_idle": "0"})
    assert job.stdout.split() == ["0"]


@pytest.mark.parametrize(("version", "plain"), [("4.1.4", "vader"), ("5.0.11", "sm")])
@pytest.mark.parametrize("built", ["smcuda", "tcp"])
def test_a_transport_that_reads_gpus_is_taken_where_there_are_some(built, version, plain, tmp_path):
    show = f'case $1 in --version) echo "mpirun (Open MPI) {version}" ;; *) echo $OMPI_MCA_btl ;; esac'
    tools = {"mpirun": show, "ompi_info": f"echo mca:btl:{built}:version:4", "nvidia-smi": "exit 0"}
    for name, text in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    job = local("2", "true", LEAPMPI_ENV=str(tmp_path), PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert job.stdout == f"self,{'smcuda' if built == 'smcuda' else plain}\n"


def start_waiting_job(folder, ranks=2):
    """A job whose ranks wait, its temporary folder being `folder`; returns when all of them do."""
    (folder / "rank.py").write_text(WAITING_RANK)
    command = [LOCAL, str(ranks), sys.executable, folder / "rank.py", folder]
    (folder / "tmp").mkdir()
    environment = child_environment({"TMPDIR": str(folder / "tmp")})
    job = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 30
    while len(list(folder.glob("ready-*"))) < ranks:
        assert time.monotonic() < deadline, "the ranks did not start"
        assert job.poll() is None, "the job ended early"
        time.sleep(0.05)
    return job


def left_behind(folder, job):
    return [*(folder / "tmp").iterdir(), *Path("/dev/shm").glob(f"leapmpi-local.*.{job.pid}.*")]


def all_ended(session, seconds=10):
    deadline = time.monotonic() + seconds
    while session_members(session) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not session_members(session)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_ranks_and_leaves_nothing(tmp_path, kind):
    job = start_waiting_job(tmp_path)
    try:
        assert left_behind(tmp_path, job), "a running job has a folder for MPI's files"
        job.send_signal(kind)
        assert job.wait(timeout=15) != 0
        assert all_ended(job.pid)
        assert not left_behind(tmp_path, job)
    finally:
        end_session(job)


def test_ranks_that_ignore_signals_are_killed_after_the_grace(tmp_path):
    deaf = "trap '' USR2 TERM; touch $0; while :; do sleep 0.1; done"
    environment = child_environment({"LEAPMPI_GRACE": "1"})
    words = [LOCAL, "2", "bash", "-c", deaf, str(tmp_path / "ready")]
    job = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        while not (tmp_path / "ready").exists():
            assert job.poll() is None
            time.sleep(0.05)
        job.terminate()
        assert job.wait(timeout=30) != 0
        assert all_ended(job.pid)
    finally:
        end_session(job)


RULE = "-" * 74 + "\n"
REPORT = (
    f"{RULE}prterun detected that one or more processes exited with non-zero status,\n\n   Exit code:    75\n{RULE}"
)

ABORTED = f'{RULE}prterun has exited due to process rank 1 with PID 0 on node vm calling\n"abort". More\n{RULE}'


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (f"leapmpi: error: no\n{REPORT}", "leapmpi: error: no\n"),
        (f"part\n leapmpi: stopped\n\n{REPORT}more", "part\n leapmpi: stopped\n\nmore"),
        (f"leapmpi: error: no\n{ABORTED}\0\0", "leapmpi: error: no\n"),
        (ABORTED, ABORTED),
        # What leapmpi has not explained, and what is not such a report.
        (REPORT, REPORT),
        (f"said leapmpi: no\n{REPORT}", f"said leapmpi: no\n{REPORT}"),
        (f"leapmpi: no\n{RULE}a table\n{RULE}", f"leapmpi: no\n{RULE}a table\n{RULE}"),
        (f"leapmpi: no\n{RULE}", f"leapmpi: no\n{RULE}"),
        (f"leapmpi: no\n{REPORT[:120]}", f"leapmpi: no\n{REPORT[:120]}"),
    ],
)
def test_reports_of_exit_codes_are_left_out_where_leapmpi_has_said_why(written, shown):
    command = [sys.executable, PROJECT / "jobs/mpirun/errors.py"]
    for size in (1, len(written)):
        job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for begin in range(0, len(written), size):
            job.stdin.write(written[begin : begin + size].encode())
            job.stdin.flush()
        assert job.communicate(timeout=20)[0].decode() == shown


def test_ctrl_c_gives_one_line_that_says_how_to_go_on(small_data, tmp_path):
    run = tmp_path / "run"
    words = [LOCAL, "2", sys.executable, "-m", "leapmpi", "train", small_data, "--run", run, "--epochs", "100000"]
    job = subprocess.Popen(
        list(map(str, words)), env=child_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not (run / "metrics.jsonl").exists() or '"epoch"' not in (run / "metrics.jsonl").read_text():
            assert time.monotonic() < deadline
            assert job.poll() is None
            time.sleep(0.05)
        job.send_signal(signal.SIGINT)
        _, errors = job.communicate(timeout=60)
    finally:
        end_session(job)
    assert job.returncode == 75
    (line,) = errors.split("\n")[:-1]
    assert re.fullmatch(r"leapmpi: interrupted: training stopped in epoch \d+, after iteration \d+ of \d+; .+", line)
    assert line.endswith(f"a checkpoint was written, the same command with --run {run} resumes it")


def test_an_invalid_grace_is_refused():
    assert local("2", "true", LEAPMPI_GRACE="soon").stderr.startswith("local: error: LEAPMPI_GRACE must be a positive")


def test_after_sigkill_its_ranks_end_and_the_next_job_removes_its_files(tmp_path):
    if subprocess.run(["setpriv", "--pdeathsig", "TERM", "true"], capture_output=True).returncode:
        pytest.skip("no setpriv with --pdeathsig")
    job = start_waiting_job(tmp_path)
    try:
        job.kill()
        job.wait()
        assert all_ended(job.pid)
        mpirun(1, ["true"], env={"TMPDIR": str(tmp_path / "tmp")})
        assert not left_behind(tmp_path, job)
    finally:
        end_session(job)
