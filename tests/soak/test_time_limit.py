"""A real time limit on the Slurm of tests/cluster.py: signalled, saved, queued again, resumed, finished. Minutes."""

import json
import re
import sys

import pytest

from leapmpi.run import load_run
from tests import cluster as clusters
from tests.cluster import Cluster, wait_for

EPOCHS = 1500
SETTINGS = ["--hidden", 8, "--batch-size", 4, "--eval-every", 50, "--threads", 1, "--log-level", "warning"]
SETTINGS += ["--time-steps", 1, "--remote", "partial"]
"""Nothing is settled by clocks, so that a resumed run and a whole one are the same to the last bit."""


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_a_run_longer_than_its_time_limit_comes_to_its_end(launcher, small_data, tmp_path):
    if why := clusters.lacking():
        pytest.skip(why)
    (tmp_path / "leapmpi").write_text(f'#!/bin/bash\nexec {sys.executable} -m leapmpi.cli "$@"\n')
    (tmp_path / "leapmpi").chmod(0o755)
    commands = json.dumps([f"export PATH={tmp_path}:$PATH"])
    # Slurm counts time limits in minutes and looks every 30 s: the signal comes 60 to 90 s after the start.
    (tmp_path / "site.toml").write_text(f"nodes = 4\ntime = '2'\nsignal_before = 60\ncommands = {commands}\n")
    cluster = Cluster(tmp_path, 4)
    try:
        run = tmp_path / "run"
        words = [tmp_path / "leapmpi", "submit", "--site", "site.toml", "--launcher", launcher, "--yes"]
        words += ["train", small_data, "--run", run, "--epochs", EPOCHS, *SETTINGS]
        done = cluster.run(words)
        job = re.search(r"submitted as job (\d+)", done.stderr)[1]
        wait_for(lambda: cluster.state(job).split()[0] == "COMPLETED", 5000, "the end of the job")
        restarts = int(cluster.state(job).split()[1])
        whole = [tmp_path / "leapmpi", "train", small_data, "--run", "whole", "--epochs", EPOCHS, *SETTINGS]
        cluster.run(["sbatch", "--wait", "--nodes=4", "--ntasks=4", "--output=whole.out", "--wrap",
                     "mpirun --bind-to none " + " ".join(map(str, whole))], timeout=2000)  # fmt: skip
    finally:
        cluster.stop()
    assert restarts >= 1
    ours, theirs = (load_run(tmp_path / name).summary for name in ("run", "whole"))
    assert ours["parameters_digest"] == theirs["parameters_digest"]
    assert ours["best"] == theirs["best"]
