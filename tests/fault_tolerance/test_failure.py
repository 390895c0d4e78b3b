"""A failure anywhere ends the job everywhere: soon, with one message that says who, where and when."""

import getpass
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leapmpi.cli.main import main
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.engine.engine import Engine
from leapmpi.errors import one_line
from leapmpi.runs.run import load_run
from tests.support.datasets import assign, make_graph
from tests.support.launch import mpirun

pytestmark = pytest.mark.long(150)

SOON = 15.0  # seconds, of which some pass before the failure


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("failure") / "data"
    graph = make_graph("single")
    write_dataset(folder, graph, assign(graph, "random", 4), 4, method="random", figures={}, seed=0)
    return folder


def failing_job(what, ranks, size, data, tmp_path, *more):
    """The finished job, its run folder and the seconds it lasted after it had started to train."""
    run = tmp_path / "run"
    command = [sys.executable, "-m", "tests.support.failing_job", what, ranks, "train", data, "--run", run]
    options = ["--epochs", "500", "--batch-size", "32", "--hidden", "8", "--device", "cpu", "--eval-every", "100"]
    job = mpirun(size, [*command, *options, *more])
    metrics = run / "metrics.jsonl"
    assert '"epoch": 1' in metrics.read_text(), "the job failed before it was to"
    return job, run, time.time() - metrics.stat().st_mtime


def error_line(job):
    """The only line that leapmpi wrote to standard error."""
    # Open MPI's own message may leave a space before ours.
    lines = [line.strip() for line in job.stderr.splitlines() if line.strip().startswith("leapmpi: ")]
    assert len(lines) == 1, f"{job.stdout}\n{job.stderr}"
    return lines[0]


def check_recorded(run, line, rank):
    """The run folder says what the screen said: that the run failed, why, and where."""
    failure = load_run(run).failure
    assert one_line(failure["why"]) in line
    assert (failure["rank"], failure["host"], failure["phase"]) == (rank, socket.gethostname(), "compute")
    assert (failure["epoch"], failure["iteration"]) == (2, 2)


@pytest.mark.parametrize(("size", "rank"), [(3, 2)])
def test_a_rank_that_fails_in_mid_epoch_ends_all_with_one_message(size, rank, data, tmp_path):
    job, run, seconds = failing_job("raise", str(rank), size, data, tmp_path)
    assert job.returncode not in (0, 1)
    assert seconds < SOON
    line = error_line(job)
    # People count epochs and iterations from 1.
    where = f"rank {rank}/{size} on {socket.gethostname()} failed in phase compute, epoch 2, iteration 3"
    assert f"{where}: RuntimeError: the feature store" in line
    trace = run / f"failure-rank-{rank}.txt"
    assert str(trace) in line
    assert "failing_job.py" in trace.read_text()
    assert "Traceback" not in job.stderr
    check_recorded(run, line, rank)


def test_one_rank_alone_fails_with_a_message_too(data, tmp_path, monkeypatch, capsys):
    genuine_step = Engine.forward_backward

    def step(engine, minibatch):
        if (minibatch.schedule.epoch, minibatch.schedule.iteration) == (1, 2):
            with engine.ctx.phases("compute"):
                raise RuntimeError("the feature store\nis on fire")
        return genuine_step(engine, minibatch)

    monkeypatch.setattr(Engine, "forward_backward", step)
    run = tmp_path / "run"
    command = ["train", data, "--run", run, "--batch-size", "32", "--hidden", "8", "--device", "cpu"]
    code = main([str(word) for word in command])
    job = subprocess.CompletedProcess(command, code, *capsys.readouterr())
    assert job.returncode not in (0, 1)
    line = error_line(job)
    check_recorded(run, line, 0)
    assert "phase compute" in line
    assert "RuntimeError" in line
    assert "Traceback" not in job.stderr


def test_when_all_ranks_fail_one_of_them_reports(data, tmp_path):
    job, run, seconds = failing_job("raise", "0,1", 2, data, tmp_path)
    assert job.returncode not in (0, 1)
    assert seconds < SOON
    check_recorded(run, error_line(job), load_run(run).failure["rank"])


def test_a_users_error_on_one_rank_keeps_its_code_and_sentence(data, tmp_path):
    job, _, seconds = failing_job("refuse", "1", 2, data, tmp_path)
    assert job.returncode == 3
    assert seconds < SOON
    line = error_line(job)
    assert "part-00001.h5 went away; bring it back" in line
    assert "rank 1/2" in line
    assert "phase compute" in line


def test_an_interrupted_rank_ends_the_job(data, tmp_path):
    job, _, seconds = failing_job("interrupt", "1", 2, data, tmp_path)
    assert job.returncode not in (0, 1)
    assert seconds < SOON
    assert "interrupted" in error_line(job)


@pytest.mark.parametrize("rank", [1])
def test_a_killed_rank_ends_the_job_and_is_named(rank, data, tmp_path):
    job, run, seconds = failing_job("kill", str(rank), 2, data, tmp_path)
    assert job.returncode != 0
    assert seconds < SOON
    line = error_line(job)
    assert f"lost rank {rank}/2 on {socket.gethostname()} in phase compute, epoch 2, iteration 3: killed" in line
    check_recorded(run, line, rank)


@pytest.mark.parametrize("what", ["sleep", "stop"])
def test_a_rank_that_does_nothing_is_named_and_the_job_ended(what, data, tmp_path):
    job, run, seconds = failing_job(what, "1", 2, data, tmp_path, "--comm-timeout", "3")
    assert job.returncode != 0
    assert 3 <= seconds < 3 + SOON
    line = error_line(job)
    waited = r"no progress for ([\d.]+) s \(--comm-timeout 3\): "
    found = re.search(rf"{waited}the job waits for rank 1/2 on (\S+), phase compute", line)
    assert float(found[1]) >= 3.0, "what it waited, not what it may"
    assert found[2] == socket.gethostname()
    check_recorded(run, line, 1)
    if what == "sleep":
        stack = (run / "stuck-rank-1.txt").read_text()
        assert "phase compute, epoch 2, iteration 3: does not wait for others" in stack
        assert "work ahead: phase " in stack
        assert 'failing_job.py", line' in stack
        assert "leapmpi-watchdog\n" in stack, "every thread is shown"
    waiting = (run / "stuck-rank-0.txt").read_text()
    assert "iteration 3: waits for others" in waiting
    assert "waits in channel " in waiting
    # Its training thread waits for messages, or for the thread that sends them.
    assert any(f"leapmpi/{name}.py" in waiting for name in ("comm/flow_control", "comm/progress_thread"))


def test_a_rank_that_computes_or_waits_for_a_kernel_is_waited_for(data, tmp_path):
    job, run, seconds = failing_job("compute", "1", 2, data, tmp_path, "--comm-timeout", "2", "--epochs", "2")
    assert job.returncode == 0, job.stderr
    assert seconds < SOON
    assert load_run(run).finished
    assert not (run / "ranks.stamps").exists()


def resumed(run, data, capsys):
    """The same command, on one rank in this process, goes on with the run and ends it."""
    command = ["train", data, "--run", run, "--epochs", "3", "--batch-size", "32", "--hidden", "8"]
    assert main([str(word) for word in (*command, "--device", "cpu", "--eval-every", "100")]) == 0
    said = capsys.readouterr().out
    assert "the start before this one failed: " in said
    assert "resumed in epoch 1, after iteration 0" in said


def test_a_rank_that_is_refused_memory_is_named_with_the_mend(data, tmp_path):
    job, run, seconds = failing_job("limit", "1", 2, data, tmp_path)
    assert job.returncode not in (0, 1)
    assert seconds < SOON
    line = error_line(job)
    where = f"rank 1/2 on {socket.gethostname()} ran out of memory in phase compute, epoch 2, iteration 3"
    assert f"{where} (the address space is limited to " in line
    assert " MiB: ulimit -v); use a smaller batch, fan-out or hidden width" in line
    check_recorded(run, line, 1)


@pytest.fixture
def small_group():
    """A control group of version 1 or 2 whose processes may use 128 MiB."""
    places = {"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"}
    for place, limit in places.items():
        group = Path(place, f"leapmpi-test-{os.getpid()}")
        try:
            group.mkdir()
            (group / limit).write_text(str(128 << 20))
        except OSError:
            continue
        yield group
        group.rmdir()
        return
    pytest.skip("no control group with a memory limit can be made here")


def test_a_rank_that_the_system_kills_for_lack_of_memory_is_named_and_the_run_goes_on(
    data, tmp_path, small_group, monkeypatch, capsys
):
    monkeypatch.setenv("LEAPMPI_TEST_GROUP", str(small_group))
    job, run, seconds = failing_job("group", "1", 2, data, tmp_path)
    assert job.returncode not in (0, 1)
    assert seconds < SOON
    line = error_line(job)
    where = f"lost rank 1/2 on {socket.gethostname()} in phase compute, epoch 2, iteration 3"
    assert f"{where}: most likely killed by the system for lack of memory" in line
    assert "use a smaller batch" in line
    check_recorded(run, line, 1)
    resumed(run, data, capsys)


def left_in_shared_memory():
    """What lies in /dev/shm, but for folders of jobs that still run and segments of jobs not started by `local`."""
    left = set()
    for entry in Path("/dev/shm").iterdir():
        owner = re.fullmatch(r"leapmpi-local\.\d+\.(\d+)\..*", entry.name)
        if not (owner and Path("/proc", owner[1]).exists()) and not entry.name.startswith("sm_segment."):
            left.add(entry.name)
    return left


def test_a_job_killed_outright_leaves_nothing_in_memory_or_the_temporary_folder(data, tmp_path, monkeypatch):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    before = left_in_shared_memory()
    job, _, _ = failing_job("kill", "0,1", 2, data, tmp_path)
    assert job.returncode != 0
    # Jobs of others may come and go meanwhile: what is left of this one stays.
    deadline = time.monotonic() + 10
    while (left := left_in_shared_memory() - before) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left
    assert set(os.listdir(temporary)) <= {f"torchinductor_{getpass.getuser()}"}  # torch's own cache, one per user


def test_losses_that_are_not_numbers_end_the_job(data, tmp_path):
    # The labels stay, the features become as large as float32 holds: the first products overflow.
    folder = tmp_path / "huge"
    graph = make_graph("single")
    graph = replace(graph, features=np.full_like(graph.features, 3e38))
    write_dataset(folder, graph, assign(graph, "random", 2), 2, method="random", figures={}, seed=0)
    command = ["-m", "leapmpi.cli", "train", folder, "--run", tmp_path / "run", "--epochs", "3", "--device", "cpu"]
    job = mpirun(2, [sys.executable, *command], timeout=60)
    assert job.returncode != 0
    line = error_line(job)
    assert "loss" in line


REFUSING = """
import sys
from leapmpi.cli.main import main
from leapmpi.comm.world import job_rank
from leapmpi.engine.engine import Preparation
from leapmpi.errors import ConfigError

genuine = Preparation.sample
def sample(preparation, schedule, key):
    if key.iteration == {iteration} and job_rank() in (1, 2):
        raise ConfigError("the sampler refuses")
    return genuine(preparation, schedule, key)

Preparation.sample = sample
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("iteration", [0, 2], ids=["before the run folder", "in training"])
def test_what_several_ranks_refuse_in_sampling_is_said_once(data, tmp_path, iteration):
    code = REFUSING.format(iteration=iteration)
    settings = ["--run", tmp_path / "run", "--epochs", "1", "--batch-size", "16", "--device", "cpu"]
    job = mpirun(3, [sys.executable, "-c", code, "train", data, *settings], timeout=90)
    assert job.returncode == 2
    assert error_line(job).startswith("leapmpi: error: the sampler refuses (rank 1/3 on ")
