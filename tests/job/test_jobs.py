"""Jobs of several ranks under a real mpirun: one message, one exit code, and nothing left however they end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from leapmpi.dataset.dataset_writer import write_dataset
from tests.support.crafted import change_array
from tests.support.graphs import random_graph
from tests.support.launch import PROJECT, child_environment, end_session, mpirun, session_members

pytestmark = pytest.mark.long(90)

LEAPMPI = [sys.executable, "-m", "leapmpi.cli"]


def messages(text: str) -> list[str]:
    """The lines of leapmpi itself; a launcher adds its own."""
    return [line for line in text.splitlines() if line.startswith("leapmpi: ")]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train", "DATA", "--fanout", "0"], 2, "--fanout: sampling.fanout: '0' is not a fan-out"),
        (["train", "DATA", "--run", "RUN"], 3, "2 ranks were started, but the dataset has 1 part"),
        (["train", "SPOILT", "--run", "RUN"], 3, "part-00002.h5: features, row 1, column 0 is nan"),
    ],
)
def test_what_all_ranks_find_is_said_once(arguments, code, message, small_data, tmp_path):
    graph = random_graph()
    data, run, spoilt = tmp_path / "data", tmp_path / "run", tmp_path / "spoilt"
    write_dataset(data, graph, np.zeros(60, np.int32), 1, method="test", figures={}, seed=0)
    shutil.copytree(small_data, spoilt)
    change_array(spoilt / "part-00002.h5", "features", (1, 0), np.nan)
    places = {"DATA": data, "RUN": run, "SPOILT": spoilt}
    job = mpirun(2, [*LEAPMPI, *(places.get(word, word) for word in arguments)])
    assert job.returncode == code
    (sentence,) = messages(job.stdout + job.stderr)
    assert sentence.startswith("leapmpi: error: ")
    assert message in sentence
    assert "Traceback" not in job.stderr
    assert not run.exists()


class Job:
    """A training job that would never end, in a session of its own with its own temporary folder."""

    def __init__(self, ranks: int, data: Path, folder: Path) -> None:
        self.run, self.temporary = folder / "run", folder / "temporary"
        self.temporary.mkdir()
        settings = ["--run", self.run, "--epochs", 10**6, "--log-level", "warning", "--eval-every", 0, "--hidden", 8]
        command = [PROJECT / "jobs/mpirun/local", ranks, *LEAPMPI, "train", data, *settings]
        self.leader = subprocess.Popen(
            [str(word) for word in command],
            env=child_environment({"TMPDIR": str(self.temporary)}),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def wait_for_epochs(self, deadline: float = 80) -> None:
        """Wait until the job is in the middle of its work."""
        end, metrics = time.monotonic() + deadline, self.run / "metrics.jsonl"
        while not metrics.exists() or metrics.read_text().count('"event": "epoch"') < 3:
            assert self.leader.poll() is None, self.leader.communicate()
            assert time.monotonic() < end
            time.sleep(0.05)

    def processes(self, name: str) -> list[int]:
        """The job's processes whose command is called `name`."""
        return [
            pid for pid in session_members(self.leader.pid) if Path(f"/proc/{pid}/comm").read_text().strip() == name
        ]

    def seconds_to_end(self, limit: float = 20) -> float:
        """How long until no process of the job is left."""
        start = time.monotonic()
        while session_members(self.leader.pid):
            assert time.monotonic() - start < limit, "processes are left"
            time.sleep(0.02)
            self.leader.poll()
        return time.monotonic() - start


def is_rank(process: int) -> bool:
    """Whether `process` is Python running leapmpi, not the launcher that was given its name."""
    return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[1:3] == [b"-m", b"leapmpi.cli"]


@pytest.fixture
def job(small_data, tmp_path):
    if shutil.which("mpirun", path=child_environment()["PATH"]) is None:
        pytest.skip("no mpirun: jobs/environment installs one")
    started = Job(2, small_data, tmp_path)
    yield started
    end_session(started.leader)
    started.leader.communicate()


@pytest.mark.parametrize("cause", ["launcher interrupted", "mpirun killed", "rank killed"])
def test_a_job_that_is_stopped_leaves_no_process_and_no_file(job, cause):
    job.wait_for_epochs()
    if cause == "launcher interrupted":
        job.leader.send_signal(signal.SIGINT)
    elif cause == "mpirun killed":
        (mpirun_itself,) = job.processes("mpirun") or job.processes("prterun")
        os.kill(mpirun_itself, signal.SIGKILL)
    else:
        ranks = [pid for pid in session_members(job.leader.pid) if is_rank(pid)]
        os.kill(max(ranks), signal.SIGKILL)
    assert job.seconds_to_end() < 10
    code = job.leader.wait()
    assert code == 75 if cause == "launcher interrupted" else code != 0
    assert list(job.temporary.iterdir()) == []
    assert [name for name in os.listdir("/dev/shm") if f".{job.leader.pid}." in name] == []
    assert "Traceback" not in job.leader.stderr.read()
    # The lock of a start that was killed stays, and the next start recognises it.
    left = {path.name for path in job.run.iterdir()} - {"summary.json", "run.lock"}
    assert left == {"config.toml", "metrics.jsonl", "log.txt", "checkpoint", "ranks.stamps"}
    for line in (job.run / "metrics.jsonl").read_text().splitlines():
        json.loads(line)


def test_one_process_leaves_nothing_even_when_it_is_killed(tmp_path):
    code = """
import os, signal
from leapmpi.comm.world import start
assert start().size == 1
print([line.split()[-1] for line in open("/proc/self/maps") if "/dev/shm" in line], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = child_environment({"TMPDIR": str(tmp_path)})
    alone = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (alone.returncode, alone.stdout) == (-signal.SIGKILL, "[]\n"), alone.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        ({"PMI_SIZE": "3", "PMI_RANK": "0"}, "an MPICH-like mpirun started 3 ranks (PMI_SIZE) but MPI sees 1"),
        ({"PMI_SIZE": "3", "PMI_RANK": "2"}, None),
        (
            {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"},
            "Slurm's srun started 4 ranks (SLURM_STEP_NUM_TASKS) but MPI sees 1",
        ),
    ],
)
def test_a_foreign_launcher_is_named_by_the_first_rank(launcher, said):
    from mpi4py import MPI

    if "PMI_SIZE" in launcher and MPI.get_vendor()[0] != "Open MPI":
        pytest.skip("MPICH is not a foreign launcher to this MPI library")
    environment = child_environment(launcher)
    alone = subprocess.run([*LEAPMPI, "doctor"], env=environment, capture_output=True, text=True, timeout=60)
    assert (alone.returncode, alone.stdout) == (5, "")
    assert "suspicious" not in alone.stderr
    assert len(messages(alone.stderr)) == (said is not None)
    assert (said or "") in alone.stderr


def test_all_kernels_are_compiled_before_the_clock(small_data, tmp_path):
    # p3 and naive are evaluated by another exchange than they are trained by.
    for strategy in ("p3", "naive"):
        words = ["train", small_data, "--run", tmp_path / strategy, "--strategy", strategy, "--epochs", "1"]
        words += ["--hidden", "8", "--log-level", "warning"]
        job = mpirun(2, [sys.executable, "-m", "tests.support.late_kernels", *words])
        assert (job.returncode, job.stdout) == (0, ""), job.stderr
