"""The first page on a fresh clone: its graph is prepared, and its first training command runs on real ranks.

What surrounds it is that of a new container: root, no settings of Open MPI, a terminal of 80 columns. The other
commands of README.md run in tests/jobs/test_documented_commands.py, the recipes in tests/jobs/test_cookbook.py.
"""

import shutil
import subprocess

import numpy as np
import pytest

from data_prep.cli import main as prep
from tests.support.documentation import commands
from tests.support.launch import PROJECT, bare_environment, run

WRITTEN = [" ".join(each.words) for each in commands("README.md")]


def write_source(path):
    """Write a small graph with features, labels and splits, as README's SOURCE."""
    rng, rows = np.random.default_rng(0), np.arange(240)
    splits = dict(zip(("train", "val", "test"), np.split(rng.permutation(240), [140, 190]), strict=True))
    features = np.eye(3, dtype=np.float32)[rows % 3]
    np.savez(path, edge_index=rng.integers(0, 240, (2, 900)), features=features, labels=rows % 3, **splits)


@pytest.mark.long(15)
def test_a_new_user_trains_on_four_ranks_from_a_fresh_clone(tmp_path, monkeypatch, capsys):
    if not (PROJECT / ".git").exists() or not shutil.which("git"):
        pytest.skip("this is not a clone")
    if not shutil.which("mpirun", path=bare_environment(tmp_path)["PATH"]):
        pytest.skip("no mpirun: jobs/environment installs one")
    clone = tmp_path / "leapmpi"
    subprocess.run(["git", "clone", "-q", "--shared", str(PROJECT), str(clone)], check=True)
    monkeypatch.chdir(clone)
    write_source("source.npz")
    importing, partitioning = (
        next(each for each in WRITTEN if each.startswith(f"leapmpi-prep {name}")) for name in ("import", "partition")
    )
    assert prep(importing.replace("SOURCE", "source.npz").split()[1:]) == 0
    assert prep(partitioning.split()[1:]) == 0
    capsys.readouterr()

    # The page says what stands for mpirun in a container.
    assert "jobs/mpirun/local 4" in (PROJECT / "README.md").read_text()
    (training, *_) = (each for each in WRITTEN if each.startswith("mpirun -n 4 leapmpi train"))
    words = training.replace("mpirun -n 4", "jobs/mpirun/local 4").split()
    job = run(words, 100, bare_environment(tmp_path) | {"PYTHONPATH": str(clone)}, clone)
    assert job.returncode == 0, job.stderr
    assert "Traceback" not in job.stderr
    lines = (job.stdout + job.stderr).splitlines()
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    assert [line.split()[0] for line in lines[:4]] == ["data", "ranks", "model", "run"]
    assert {"Learning:", "Speed:"} <= {line.split(" ")[0] for line in lines}
    assert (clone / "runs/a/summary.json").exists()
