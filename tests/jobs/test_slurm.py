"""Jobs on a real Slurm of four hosts (tests/support/cluster.py): staged, in arrays, prepared, cancelled, resumed."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from leapmpi.runs.run import load_run
from tests.data_prep.commands.test_workers import content
from tests.support import cluster as clusters
from tests.support.cluster import Cluster, wait_for

LAUNCHERS = {"leapmpi": "leapmpi.cli", "leapmpi-prep": "data_prep.cli"}

pytestmark = [pytest.mark.long(110), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if why := clusters.lacking():
        pytest.skip(why)
    made = Cluster(tmp_path_factory.mktemp("cluster"), 4)
    yield made
    made.stop()


@pytest.fixture
def submit(cluster, small_data, tmp_path):
    """A function that submits a leapmpi command by `leapmpi submit --yes`; returns the numbers of its jobs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, module in LAUNCHERS.items():
        (programs / name).write_text(f'#!/bin/bash\nexec {sys.executable} -m {module} "$@"\n')
        (programs / name).chmod(0o755)
    commands = [f"export PATH={programs}:$PATH"]
    (tmp_path / "site.toml").write_text(f'partition = "test"\ncommands = {json.dumps(commands)}\n')

    def run(*arguments: object) -> list[str]:
        words = [sys.executable, "-m", "leapmpi.cli", "submit", "--site", tmp_path / "site.toml", "--yes", *arguments]
        done = cluster.run(words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return re.findall(r"submitted as job (\d+)", done.stderr)

    return run


def ended(cluster: Cluster, job: str, seconds: float = 120) -> str:
    """Wait until a job has left the queue; returns its state and restarts."""
    wait_for(lambda: cluster.state(job).split()[0] not in ("PENDING", "RUNNING", "COMPLETING"), seconds, f"job {job}")
    return cluster.state(job)


def started(run: Path) -> None:
    """Wait until a run has ended its first epoch."""
    metrics = run / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and '"event": "epoch"' in metrics.read_text(), 90, "the first epoch")


def log(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(folder.glob("*.out")))


def test_prepared_staged_and_trained_on_four_nodes(cluster, submit, tmp_path):
    synth = "--vertices 400 --edges 2000 --features 6 --classes 3"
    cluster.said(sys.executable, "-m", "data_prep.cli", "synth", "graph.h5", *synth.split(), cwd=tmp_path)
    prepare, train = submit(
        "--nodes", 4, "--stage", "/dev/shm", "--prepare", "partition graph.h5 data --parts 4 --method hash",
        "train", "data", "--epochs", 2, "--hidden", 8,
    )  # fmt: skip
    assert ended(cluster, train) == "COMPLETED 0", log(tmp_path)
    assert cluster.state(prepare) == "COMPLETED 0"
    summary = load_run(tmp_path / "runs" / f"leapmpi-{train}").summary
    assert summary["ranks"] == 4
    text = log(tmp_path)
    assert re.search(rf"data +/dev/shm/leapmpi-root\.{train}: 400 vertices", text)
    assert re.search(r"ranks +4 on 4 nodes", text)
    for host in range(4):
        assert cluster.said("ls", "/dev/shm", host=host) == ""


def test_preparation_in_arrays_then_training(cluster, submit, tmp_path):
    edges = np.random.default_rng(3).integers(0, 400, (3000, 2))
    (tmp_path / "edges.csv").write_text("".join(f"{s},{d}\n" for s, d in edges.tolist()))
    labels = "".join(f"{number % 3}\n" for number in range(400))
    (tmp_path / "labels.csv").write_text(labels)
    flags = "--labels labels.csv --features random:6 --splits random:0.6,0.2,0.2"
    jobs = submit(
        "--nodes", 2, "--prepare", f"import edges.csv graph.h5 {flags}",
        "--prepare", "partition graph.h5 data --parts 4 --method ldg", "--prepare-tasks", 3,
        "train", "data", "--epochs", 2, "--hidden", 8,
    )  # fmt: skip
    assert len(jobs) == 7
    assert ended(cluster, jobs[-1], 240) == "COMPLETED 0", log(tmp_path)
    text = log(tmp_path)
    for sentence in ("edges-sorted of 3 tasks", "parts-found of 3 tasks, parts-written of 3 tasks"):
        assert f"shares taken: {sentence}" in text
    # One process alone makes the same parts.
    alone = tmp_path / "alone"
    alone.mkdir()
    python = [sys.executable, "-m", "data_prep.cli"]
    cluster.said(*python, "import", "edges.csv", "alone/graph.h5", *flags.split(), cwd=tmp_path)
    cut = ["--parts", "4", "--method", "ldg"]
    cluster.said(*python, "partition", "alone/graph.h5", "alone/data", *cut, cwd=tmp_path)
    parts = sorted((alone / "data").glob("part-*.h5"))
    assert len(parts) == 4
    for part in parts:
        assert content(tmp_path / "data" / part.name) == content(part)


def test_a_cancelled_job_leaves_no_process_and_is_not_queued_again(cluster, submit, small_data, tmp_path):
    cancelled("mpirun", cluster, submit, small_data, tmp_path)


def cancelled(launcher, cluster, submit, small_data, tmp_path):
    """Start a job by `launcher`, cancel it, and check that no process stays behind."""
    (job,) = submit("--nodes", 2, "--launcher", launcher, "train", small_data, "--epochs", 10**6, "--run", "run")
    started(tmp_path / "run")
    # Ranks of other nodes may find another script of the name in PATH, but all are run by Python.
    wait_for(lambda: sum("/python" in each for each in cluster.programs(" train ")) >= 2, 90, "the ranks")
    cluster.said("scancel", job)
    assert ended(cluster, job, 60) == "CANCELLED 0"
    wait_for(lambda: not cluster.programs("leapmpi"), 60, "the last process")
    assert cluster.said("squeue", "-h") == ""


def test_a_job_that_is_stopped_is_queued_again_resumes_and_learns_the_same(cluster, submit, small_data, tmp_path):
    settings = ["--epochs", 30, "--hidden", 8, "--batch-size", 32, "--eval-every", 10, "--verify", "none"]
    # Chosen by no measurement, so that both runs are the same to the last bit.
    settings += ["--time-steps", 1, "--remote", "partial"]
    (stopped,) = submit("--nodes", 4, "train", small_data, "--run", "stopped", *settings)
    (whole,) = submit("--nodes", 4, "train", small_data, "--run", "whole", *settings)
    started(tmp_path / "stopped")
    # What Slurm does at the time given by --signal=B:USR2@SECONDS.
    cluster.said("scancel", "--signal=USR2", "--batch", stopped)
    assert ended(cluster, whole, 200) == "COMPLETED 0", log(tmp_path)
    assert ended(cluster, stopped, 200) == "COMPLETED 1", log(tmp_path)
    text = (tmp_path / f"leapmpi-{stopped}.out").read_text()
    starts = [f"{stopped} on node[0-3], restart {number}" for number in (0, 1)]
    assert [text.count(sentence) for sentence in (*starts, "SIGUSR2", "resumed in ")] == [1] * 4, text
    resumed, uninterrupted = (load_run(tmp_path / name).summary for name in ("stopped", "whole"))
    assert resumed["parameters_digest"] == uninterrupted["parameters_digest"]
    assert resumed["best"] == uninterrupted["best"]
